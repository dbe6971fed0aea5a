package scriptcache

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// Connections for scripts are shared pipes in lanes beside the one of ordinary commands: lane 1 carries quick scripts of
// all clients of an identity, those above it one client's run at a time. Unused ones are closed like those of idle identities.
const quickLane = 1

// MaxAlone is how many runs may have a connection to themselves at once; more go over the quick lane.
const MaxAlone = 64

// QuickTime is how long a quick script may take, with the time that it waits for others.
const QuickTime = 50 * time.Millisecond

// Lanes are the lanes in use.
type Lanes struct {
	mu    sync.Mutex // a leaf
	quick map[upstream.Identity]*Lane
	alone map[upstream.Identity]struct{} // with their lanes
}

// Lane is the quick lane of an identity.
type Lane struct {
	lanes   *Lanes
	id      upstream.Identity
	users   int          // sessions that have it open; guarded by Lanes.mu
	waiting atomic.Int64 // runs under way
	moved   atomic.Int64 // when a run last ended, or began as the only one; unix nanoseconds
}

// NewLanes returns Lanes of which none is in use.
func NewLanes() *Lanes {
	return &Lanes{quick: map[upstream.Identity]*Lane{}, alone: map[upstream.Identity]struct{}{}}
}

// Join notes one more user of the quick lane of id, until Leave.
func (l *Lanes) Join(id upstream.Identity) *Lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	id.Lane = quickLane
	q := l.quick[id]
	if q == nil {
		q = &Lane{lanes: l, id: id}
		l.quick[id] = q
	}
	q.users++
	return q
}

// Leave ends what Join began.
func (q *Lane) Leave() {
	q.lanes.mu.Lock()
	defer q.lanes.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(q.lanes.quick, q.id)
	}
}

// ID is the identity by which connections of the lane are opened.
func (q *Lane) ID() upstream.Identity { return q.id }

// Take finds a lane of id that nobody uses, until GiveBack. ok is false when too many are in use.
func (l *Lanes) Take(id upstream.Identity) (lane upstream.Identity, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.alone) >= MaxAlone {
		return id, false
	}
	for id.Lane = quickLane + 1; ; id.Lane++ {
		if _, used := l.alone[id]; !used {
			l.alone[id] = struct{}{}
			return id, true
		}
	}
}

// GiveBack ends what Take began.
func (l *Lanes) GiveBack(lane upstream.Identity) {
	l.mu.Lock()
	delete(l.alone, lane)
	l.mu.Unlock()
}

// Stuck says that a script in the lane takes longer than a quick one may: no other should be sent behind it.
func (q *Lane) Stuck() bool {
	return q.waiting.Load() > 0 && time.Now().UnixNano()-q.moved.Load() > int64(QuickTime)
}

// Timed notes what a run in the lane takes, and returns it.
func (q *Lane) Timed(run func()) time.Duration {
	began := time.Now()
	if q.waiting.Add(1) == 1 {
		q.moved.Store(began.UnixNano())
	}
	run()
	q.waiting.Add(-1)
	end := time.Now()
	q.moved.Store(end.UnixNano())
	return end.Sub(began)
}

// InUse is how many lanes are in use. It is for tests, also of packages above this one.
func (l *Lanes) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.quick) + len(l.alone)
}
