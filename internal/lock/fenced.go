package lock

import (
	"context"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// HoldRequest asks whether an owner holds a lock, by what Redis says at one moment that the asker chooses.
type HoldRequest struct {
	DB    int
	Key   string
	Owner string // "": the connection
	Side  Kind   // Read or Write; Plain = any lock, on either side
}

// Fences says whether a command can be fenced by that lock at all.
func (m *Manager) Fences(key string) error {
	if err := m.rules.Fences(); err != nil {
		return err
	}
	return m.nameable(key)
}

// HoldFields are the fields of the lock's hash that tell whether the owner holds it; Holds takes their values.
func (c *Client) HoldFields(r HoldRequest) []string {
	id := c.id(r.Side, r.DB, r.Key, r.Owner)
	return []string{"mode", id.As(Read).Field(), id.As(Write).Field(), id.As(Plain).Field()}
}

// seen is what the values of HoldFields, nil for one that is not there, say that the owner has of the lock. The fields of a
// plain lock are owners as they are: another owner's name may look like our field as a reader.
func seen(values [][]byte) (has lockstore.Seen) {
	if values[0] == nil {
		return lockstore.Seen{Plain: values[3] != nil}
	}
	return lockstore.Seen{Reads: values[1] != nil, Writes: values[2] != nil && string(values[0]) == "write"}
}

// Holds says whether the values of HoldFields are those of a lock that the owner holds. The error is LOCKKIND: it holds a
// lock that has no sides, and one was named.
func (r HoldRequest) Holds(values [][]byte) (bool, error) {
	has := seen(values)
	switch {
	case r.Side == Plain:
		return has.Any(), nil
	case has.Plain:
		return false, otherKind(r.Key)
	}
	return has.On(r.Side), nil
}

// ReadHolds are the keys of the owner's read holds, by the values of HoldFields; none if the owner holds the lock
// otherwise. The lock's hash may still name a reader whose lease is over while others read: but Redis has one of these
// keys for as long as the reader holds the lock.
func (c *Client) ReadHolds(r HoldRequest, values [][]byte) []string {
	if has := seen(values); !has.Reads || r.Side != Read && has.Writes {
		return nil
	}
	id := c.id(Read, r.DB, r.Key, r.Owner)
	count, _ := strconv.ParseInt(string(values[1]), 10, 64)
	return readHolds(id, max(count, 1))
}

// fencedHolds is how many of a reader's holds FENCED looks at, the newest ones: what somebody wrote into a hash must
// not make the question long.
const fencedHolds = 100

// readHolds are the keys of so many holds, the newest first. Each has a lease of its own, as Redisson's have: the
// newest may be over before those it is nested in.
func readHolds(id lockstore.ID, count int64) (keys []string) {
	for i := count; i > max(0, count-fencedHolds); i-- {
		keys = append(keys, id.ReadHold(i))
	}
	return keys
}

// ReadHoldsHere is ReadHolds by what this proxy knows. If it knows nothing of a reader's lease that another proxy gave,
// FENCED looks once more.
func (c *Client) ReadHoldsHere(r HoldRequest) []string {
	id := c.id(Read, r.DB, r.Key, r.Owner)
	if r.Owner != "" {
		if !c.m.leases.noted(id) || r.Side != Read && c.m.leases.noted(id.As(Write)) {
			return nil
		}
		return readHolds(id, 1)
	}
	counts := c.m.holds.peek(id).counts
	if r.Side != Read && counts.Writes > 0 {
		return nil
	}
	return readHolds(id, counts.Reads)
}

// Lost is the LOCKLOST, once, of a lock that the connection has lost and that it has not taken again: it stays lost
// even if Redis has it for a moment longer. About a named owner Redis alone decides.
func (c *Client) Lost(r HoldRequest) error {
	if r.Owner != "" {
		return nil
	}
	return c.told(r.DB, r.Key)
}

// NotHeld is the error for an owner that does not hold the lock, as Redis has just said: LOCKLOST if the connection has
// lost it, else NOTHELD. nil: it holds the lock now. Redis is first asked about a hold that was thought to be alive.
func (c *Client) NotHeld(ctx context.Context, r HoldRequest) error {
	if r.Owner != "" {
		return notHeld(r.Key, false)
	}
	var side Kind
	id := c.id(r.Side, r.DB, r.Key, "")
	rec, err := c.m.holds.enter(ctx, patience, func() (rec *record, err error) {
		rec, side, err = c.m.holds.own(c, id)
		return rec, err
	}, nil)
	if err != nil {
		return err
	}
	if err := c.m.watchdog.visitBusy(rec, 0); err != nil {
		return err
	}
	if c.m.holds.peek(rec.id).has(side) {
		return nil
	}
	return c.lostOrNotHeld(r.DB, r.Key)
}
