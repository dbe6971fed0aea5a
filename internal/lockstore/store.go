package lockstore

import (
	"context"
	"log/slog"
	"time"
)

// Store is where the locks of an engine are kept, and what is done to them there: each on one Redis (sharded), or each
// on several, of which a majority decides (quorum). Errors are those of the verbs.
type Store interface {
	// Run does what the store does by itself, until ctx ends. It returns when requests has ended, too: requests that
	// are under way then hang, and are ended.
	Run(ctx, requests context.Context)
	Location(key string) Location // of the lock with that name
	Steps
	Reads
	Waits
}

// Steps are what is done to locks.
type Steps interface {
	// Admit returns an error if a lock may not be taken, as far as the store knows what its Redis can do. That takes a
	// moment after a start: the question waits no longer than wait, if that is not 0, and no longer than ctx.
	Admit(ctx context.Context, name string, wait time.Duration) error
	Acquire(ctx context.Context, a *Acquire) (Acquired, error)
	Release(ctx context.Context, r *Release) (Released, error)
	Renew(ctx context.Context, r Renewal) ([]int64, error) // returns StillThere, NotThere or Undecided for each hold
	Extend(ctx context.Context, e Extension) (Extended, error)
}

// Reads are what is asked about locks.
type Reads interface {
	// Look reads what there is of one owner's holds. It waits until final has passed, so that a request that was sent
	// before is not done any more. It tries again after failures, until giveUp.
	Look(id ID, final, giveUp time.Time) (Seen, error)
	// Info reads a lock, and about so many of its owners: AllOwners, or fewer.
	Info(ctx context.Context, db int, key string, most int) (Info, error)
	// Able is why locks cannot be had, by trial locks of the last ten seconds; nil: they can. where has it for each
	// Redis that keeps locks.
	Able() (where []Ability, err error)
}

// Waits are what waiters for locks need.
type Waits interface {
	// Subscribe has messages on a channel wake whoever reads wake, which has one slot; so does what may have been missed.
	Subscribe(name string, wake chan<- struct{}) Subscription
	// RefreshQueue tells Redis that owners still wait in a fair queue; called are those, counted from 1, that are to
	// try now, next is in how long others may be (negative: none).
	RefreshQueue(q Queue) (called []int64, next time.Duration, err error)
	// LeaveQueue takes an owner out of a fair queue. Until final has passed a request without an answer may still put
	// the owner there. What takes longer goes on in the background, unless stays says by then that the owner is to
	// stay.
	LeaveQueue(id ID, final time.Time, stays func() bool)
	// Vacate wakes those that wait for a lock whose hold ends by itself, from at on. If the owner has the lock after
	// until, it has taken it anew. The owner may also be a proxy, which no longer waits for the lock.
	Vacate(id ID, at, until time.Time)
}

// Location is where a lock is kept, for those that send one script about many locks.
type Location struct {
	Node   any // renewals of different nodes do not wait for each other
	Slot   int // locks of different slots are not in one script
	AtOnce int // how many scripts a node gets side by side
}

// Subscription is a listener's subscription to one channel.
type Subscription struct {
	// Ready waits until the channel is subscribed to, until over (ErrOver), or for as long as the store lets anybody
	// wait for that.
	Ready func(ctx context.Context, over <-chan time.Time) error
	Close func()
}

// Opener makes the store of an engine, and says by what rules its locks go.
type Opener func(Host) (Store, Rules)

// Host is what a store knows of the engine that it works for, and what it asks and tells it.
type Host struct {
	UUID string // of this proxy
	Log  *slog.Logger

	Background func(work func()) // runs work that outlives the step that began it
	// Says whether d has passed; the end of ctx, or of the engine, may come first.
	Sleep func(ctx context.Context, d time.Duration) bool

	// Recheck makes the engine check at once those holds for which why gives the reason for which they may be missing;
	// why gets their key, and what they are suspected for already.
	Recheck func(why func(key, already string) (reason string))
	// Wake makes all who wait for some keys try: messages may have been missed.
	Wake func(some func(key string) bool)
	// Shorten moves the deadlines of the holds of some keys earlier by that much, but not those that go by an answer to
	// what was sent after then.
	Shorten func(by time.Duration, then time.Time, some func(key string) bool)
}

// RecheckAll makes the engine check every hold.
func (h Host) RecheckAll(reason string) { h.Recheck(func(_, _ string) string { return reason }) }

// EveryKey says that what is told is about all keys.
func EveryKey(string) bool { return true }

// The reasons for which a hold may be missing that a store knows of.
const (
	Gone     = "gone"     // Redis no longer has it: deleted, evicted, flushed, or forgotten in a restart
	Clock    = "clock"    // gone after Redis' clock jumped
	Failover = "failover" // the new master does not have it
)
