package lock

import (
	"context"
	"strconv"
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
	if err := m.store.Rules().Fences(); err != nil {
		return err
	}
	return m.nameable(key)
}

// HoldFields are the fields of the lock's hash that tell; their values are what Holds takes.
func (c *Client) HoldFields(r HoldRequest) []string {
	id, _ := c.id(r.Side, r.DB, r.Key, r.Owner)
	return []string{"mode", id.As(Read).Field(), id.As(Write).Field(), id.As(Plain).Field()}
}

// Holds says whether the values of HoldFields, nil for one that is not there, are those of a lock that the owner holds.
// The error is LOCKKIND: it holds a lock that has no sides, and one was named.
func (r HoldRequest) Holds(values [][]byte) (bool, error) {
	if values[0] == nil { // a plain lock, where owners stand as they are: another one's name may be the field of ours as a reader
		own := values[3] != nil
		if own && r.Side != Plain {
			return false, otherKind(r.Key)
		}
		return own, nil
	}
	reads, writes := values[1] != nil, values[2] != nil && string(values[0]) == "write"
	switch r.Side {
	case Read:
		return reads, nil
	case Write:
		return writes, nil
	}
	return reads || writes, nil
}

// ReadHold is the key of the newest read hold by which the owner holds the lock, as the values of HoldFields say; "" when it holds it
// otherwise. The lock's hash may tell of a reader whose lease is over while others read: Redis has the key for as long as it reads.
func (c *Client) ReadHold(r HoldRequest, values [][]byte) string {
	mode, count := string(values[0]), string(values[1])
	if mode == "" || count == "" || r.Side != Read && mode == "write" && values[2] != nil {
		return ""
	}
	id, _ := c.id(Read, r.DB, r.Key, r.Owner)
	return id.Keys()[1] + ":" + count
}

// ReadHoldHere is ReadHold by what this proxy knows of the owner's holds.
func (c *Client) ReadHoldHere(r HoldRequest) string {
	id, _ := c.id(Read, r.DB, r.Key, r.Owner)
	c.m.holds.mu.Lock()
	defer c.m.holds.mu.Unlock()
	h, writes := c.m.holds.byID[id], c.m.holds.byID[id.As(Write)]
	if h == nil || h.count == 0 || r.Side != Read && writes != nil && writes.count > 0 {
		return ""
	}
	return id.Keys()[1] + ":" + strconv.FormatInt(h.count, 10)
}

// Lost is the LOCKLOST of a connection's own lock that was reported lost, and that it has not taken again: it stays lost
// even if Redis has it for a moment longer. What holds for an owner with a name, Redis alone says.
func (c *Client) Lost(r HoldRequest) error {
	id, explicit := c.id(r.Side, r.DB, r.Key, r.Owner)
	if explicit || id.Kind == Plain && len(c.m.holds.known(id)) > 0 {
		return nil
	}
	if id.Kind == Plain {
		id = c.remembered(id)
	}
	if lost, ok := c.lossOf(id); ok {
		return lost.error(r.Key)
	}
	return nil
}

// NotHeld is what an owner is told that does not hold the lock, as Redis has just said: LOCKLOST if it did through this
// proxy, else NOTHELD. nil: it holds it now. A hold that was thought to be alive is looked at first, since it may have
// been ended through another proxy, which is no loss.
func (c *Client) NotHeld(ctx context.Context, r HoldRequest) error {
	m := c.m
	id, explicit := c.id(r.Side, r.DB, r.Key, r.Owner)
	kinds := []Kind{id.Kind}
	if id.Kind == Plain {
		kinds = m.holds.known(id)
	}
	for _, k := range kinds {
		if err := m.watchdog.lookAgain(ctx, id.As(k), explicit); err != nil {
			return err
		}
		if m.holds.held(id.As(k)) {
			return nil
		}
	}
	if id.Kind == Plain {
		id = c.remembered(id)
	}
	if lost, ok := c.lossOf(id); ok {
		return lost.error(r.Key)
	}
	return notHeld(r.Key, c.named.Load() && !explicit)
}
