package lock

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Loss is a lock that its holder no longer has and did not give back.
type Loss struct {
	Key    string
	Kind   Kind
	Reason string // gone, expired, unrenewed, forced, max-hold, clock, failover
}

// The reasons of a loss, short enough for a metric's label.
const (
	reasonGone      = lockstore.Gone
	reasonExpired   = "expired"   // the lease it was taken with is over
	reasonUnrenewed = "unrenewed" // no renewal could be confirmed before the lease was over
	reasonForced    = "forced"    // UNLOCK FORCE, through this proxy or, from the page, another
	reasonMaxHold   = "max-hold"  // held longer than max-hold, no longer renewed
	reasonClock     = lockstore.Clock
	reasonFailover  = lockstore.Failover
)

var reasonText = map[string]string{
	reasonGone:      "Redis no longer has it",
	reasonExpired:   "its lease was over",
	reasonUnrenewed: "it could not be renewed in time",
	reasonForced:    "it was freed by force",
	reasonMaxHold:   "it was held longer than max-hold",
	reasonClock:     "Redis' clock jumped",
	reasonFailover:  "after a failover the new master does not have it",
}

type lossRecord struct {
	reason string
	at     time.Time
}

func (l lossRecord) error(key string) error {
	return &Error{Code: "LOCKLOST", Text: fmt.Sprintf("'%s' was lost %d ms ago (%s): %s",
		lockstore.Printable(key), time.Since(l.at).Milliseconds(), l.reason, reasonText[l.reason])}
}

// lossKey is whose loss it is, among those of one connection: the next verb about that lock is told, whatever its kind.
type lossKey struct {
	db  int
	key string
}

// untoldMost and untoldOverhead bound what is remembered for one connection that it has lost and was not told, in
// bytes. Leases that have ended when they were to end are forgotten then: whoever lets them run out does not ask about
// each. A connection with more losses than that is closed, since nobody reads there.
const untoldMost, untoldOverhead = 4 << 20, 128

// untold is what one connection has lost and was not told of yet. holds.mu guards it.
type untold struct {
	losses map[lossKey]lossRecord
	bytes  int  // that these take
	full   bool // the connection is closed for them: no more are kept
}

// note keeps what was lost for the connection's next verb about it. It says, once, that this is more than is kept.
func (u *untold) note(id lockstore.ID, l lossRecord) (tooMuch bool) {
	if u.full {
		return false
	}
	if u.losses == nil {
		u.losses = map[lossKey]lossRecord{}
	}
	key := lossKey{id.DB, id.Key}
	if _, known := u.losses[key]; !known {
		u.bytes += len(id.Key) + untoldOverhead
	}
	u.losses[key] = l
	if u.bytes <= untoldMost {
		return false
	}
	for at, l := range u.losses {
		if l.reason == reasonExpired {
			u.take(at.db, at.key)
		}
	}
	u.full = u.bytes > untoldMost
	return u.full
}

// take is what is remembered of a loss. It is forgotten: the connection is told once.
func (u *untold) take(db int, key string) (l lossRecord, ok bool) {
	at := lossKey{db, key}
	if l, ok = u.losses[at]; ok {
		delete(u.losses, at)
		u.bytes -= len(key) + untoldOverhead
	}
	return l, ok
}

// tell is the LOCKLOST that a verb about that lock is to answer first; nil: nothing was lost. To a verb that takes the
// lock it is no news that a lease has ended when it was to end: that is forgotten when the lock is granted.
func (u *untold) tell(db int, key string, takes bool) error {
	if takes && u.losses[lossKey{db, key}].reason == reasonExpired {
		return nil
	}
	l, ok := u.take(db, key)
	if !ok {
		return nil
	}
	return l.error(key)
}

// told is the LOCKLOST, once, of a verb about that lock that does not take it; nil: nothing was lost.
func (c *Client) told(db int, key string) error {
	c.m.holds.mu.Lock()
	defer c.m.holds.mu.Unlock()
	return c.losses.tell(db, key, false)
}

// lostOrNotHeld is the answer to a verb about a lock that the connection does not have: LOCKLOST once if it has lost
// it, else NOTHELD.
func (c *Client) lostOrNotHeld(db int, key string) error {
	return cmp.Or(c.told(db, key), notHeld(key, c.library.Load()))
}

// askedFor says whether a hold ended as somebody has asked: the holder, who gave it a lease, or an operator. Those who
// watch the proxy are told of it apart, so that such ends, which come by the thousand, hide no loss.
func askedFor(reason string) bool { return reason == reasonExpired || reason == reasonForced }

// lossesLogged is how many losses the log has in a while.
const lossesLogged = 200

// news are who is told how holds end, beside their connections.
type news struct {
	counts *counts
	log    *slog.Logger // which nobody waits for: see internal/logqueue
	events *events.Log
}

// ended tells of a hold that was not given back.
func (n news) ended(id lockstore.ID, e events.Event) {
	what := []any{"key", id.Key, "kind", id.Kind, "db", id.DB, "owner", id.Owner, "reason", e.Reason}
	if askedFor(e.Reason) {
		e.Kind = events.End
		n.counts.expected.Add(1, e.Side, e.Reason)
		n.log.Info("lock ended", what...)
	} else {
		e.Kind = events.Loss
		n.counts.lost.Add(1, e.Side, e.Reason)
		n.log.Warn("lock lost", what...)
	}
	n.events.Add(e)
}

// released tells of a hold that was given back, after so long.
func (n news) released(rec *record, side Kind, held time.Duration) {
	e := eventOf(events.Release, time.Now(), rec.id.As(side))
	e.Held = held
	telemetry.LockReleased(e.Side, e.Held)
	if !events.Long(e.Held) {
		return
	}
	if e.Reason = "its client has gone"; rec.client != nil {
		e.Reason, e.Client = "", rec.client.who()
	}
	n.events.Add(e)
}
