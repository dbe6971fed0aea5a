package lock

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// store is where the locks of an engine are kept, and what is done to them there. There are two: direct, where each lock is on one
// Redis, and quorum, where a majority of several decides.
type store interface {
	parts() []func(context.Context) // what runs for as long as the engine does
	close()                         // when all of that has ended
	abort()                         // close, for requests that hang

	// Before anything is sent.
	fits(name string) error // whether a lock may have this name
	// admit says whether a lock may be asked for, and how: without what this store does not have.
	admit(ctx context.Context, r Request) (Request, error)
	limit(lease, replicas int64) error
	drift(lease time.Duration) time.Duration        // how much earlier than by its lease a lock counts as over
	votes() bool                                    // an owner's hold counts one, and each attempt is taken back under its own name
	slot(key string) int                            // locks of different slots are not in one script
	lane(key string) (at *cluster.Node, places int) // where renewals go, and how many at once
	publishing() string                             // what scripts are told to wake waiters with
	final(at int64) int64                           // when a request that was to be sent with that not-after can no longer be done

	// The steps. Errors are those of the verbs.
	acquire(ctx context.Context, a *acquire) (answer, error)
	release(ctx context.Context, r *release) (code, left int64, err error)
	// renew says of each hold what became of it, also beside an error that is about all of them.
	renew(ctx context.Context, r lockstore.Renewal) ([]int64, error)
	extend(ctx context.Context, e lockstore.Extension) (lockstore.Extended, error)
	force(ctx context.Context, build func(notAfter string) node.Call) (code int64, err error)

	// What is there.
	look(id lockstore.ID, named bool, notAfter int64, giveUp time.Time) (seen, error)
	info(ctx context.Context, c node.Call) (Info, error)
	sidesHeld(ctx context.Context, id lockstore.ID) ([]Kind, error)
	watchedElsewhere(id lockstore.ID) bool // whether somebody renews an owner's hold, as far as Redis can be asked
	nodes() []NodeInfo                     // of a quorum

	// Those that wait.
	subscribe(name string, l node.Listener)
	unsubscribe(name string, l node.Listener)
	ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error)
	// refreshQueue says in Redis that owners wait in a fair queue; called are those, counted from 1, that are to try now, next is in
	// how long others may be: negative: none.
	refreshQueue(q lockstore.Queue) (called []int64, next time.Duration, err error)
	// leaveQueue takes an owner out of a fair queue, who may come there by a request without an answer until lost has passed. What
	// takes longer goes on alone, unless the owner stays there by then.
	leaveQueue(id lockstore.ID, lost int64, stays func() bool)
	// vacate has those told that wait for a lock whose hold ends by itself, from at on. Who has it in this owner's name after until has
	// taken it anew.
	vacate(id lockstore.ID, at, until time.Time)
}

// shards are the Redis servers that have the locks of a direct store: a single one, or the masters of a cluster by slot.
type shards interface {
	parts() []func(context.Context)
	close()
	abort()

	fits(name string) error
	slot(key string) int
	lane(key string) (at *cluster.Node, places int)
	publishing() string
	final(at int64) int64
	subscribe(name string, l node.Listener)
	unsubscribe(name string, l node.Listener)
	ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error)

	// permitted says whether locks with this name may be given, when that is known, or ctx has ended.
	permitted(ctx context.Context, name string) (refused, err error)
	// do has send talk to the Redis that has the key, with ask behind ASKING.
	do(ctx context.Context, key string, send func(s *shard, ask bool) error) error
	// ints runs a script that every LOCK and UNLOCK needs on the Redis that has its first key, in as few steps as it may.
	ints(ctx context.Context, c node.Call) ([]int64, error)
	// prepare makes a call what is to be sent to that Redis.
	prepare(ctx context.Context, s *shard, c node.Call) (node.Call, error)
	// wasLate is told that a shard came to a script after its not-after.
	wasLate(s *shard)
	// again says whether what was not done is asked of a shard again.
	again(err error) bool
	// notAfter is the not-after of a script that is about to be sent, as its argument, and in µs of the clock of now.
	notAfter(ctx context.Context) (text string, at int64, err error)
	// now is the time in µs by which not-afters are reckoned.
	now() int64
	// clockAt turns what the Redis of a key says of its clock into the time of now; 0: what was lost there may still be done.
	clockAt(key string, now int64) int64
	// sample reads that clock again, after it was found to be ahead.
	sample() error
}

// direct keeps each lock on one Redis.
type direct struct {
	shards
	m      *Manager
	vacant vacancies // locks that have ended without an UNLOCK
}

// shard is one Redis of a direct store.
type shard struct {
	node.Node
	member // of a cluster
}

func newDirect(m *Manager, s shards) *direct { return &direct{shards: s, m: m, vacant: newVacancies()} }

func (d *direct) parts() []func(context.Context) { return append(d.shards.parts(), d.tellVacancies) }

func (d *direct) limit(int64, int64) error { return nil }

func (d *direct) drift(time.Duration) time.Duration { return 0 }

func (d *direct) votes() bool { return false }

func (d *direct) nodes() []NodeInfo { return nil }

// unsharded is what stores without slots have in common.
type unsharded struct{ subscribers node.Subscribers }

func (unsharded) close() {}
func (unsharded) abort() {} // the Control's Close does that

func (unsharded) fits(string) error { return nil }

func (unsharded) slot(string) int { return 0 }

func (unsharded) lane(string) (at *cluster.Node, places int) { return nil, renewAtOnce }

func (unsharded) publishing() string { return node.Publish }

func (unsharded) final(at int64) int64 { return at }

func (u unsharded) subscribe(name string, l node.Listener) { u.subscribers.Subscribe(name, l) }

func (u unsharded) unsubscribe(name string, l node.Listener) { u.subscribers.Unsubscribe(name, l) }

func (u unsharded) ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error) {
	return u.subscribers.Ready(ctx, name, over)
}
