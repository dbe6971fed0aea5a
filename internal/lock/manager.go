// Package lock is what a lock is: taken, waited for, renewed, lost and given back, as plain Go calls. The state lives in
// Redis, in Redisson's bytes; a Manager keeps beside it what one proxy must know: who of its clients holds what, until when,
// and who waits.
package lock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/upstream"
)

// Manager is the lock engine of one proxy process. All methods are safe for concurrent use.
type Manager struct {
	// static after construction
	opts     Options
	log      *slog.Logger
	uuid     string
	store    store
	named    *namedLosses // what named owners lost
	lossLog  lossLog
	done     *finishedUnlocks // of named owners, for the one that is sent again
	requests atomic.Uint64    // numbers registrations and attempts
	life

	// guarded by mu
	mu    sync.Mutex
	holds map[lockstore.ID]*hold
	byKey map[lockstore.LineKey]map[*hold]struct{} // live holds of a key
	lines map[lockstore.LineKey]*line
	timetable

	stats counters
}

// life is what is under way, and how it ends.
type life struct {
	drained chan struct{} // closed by Drain
	drain   sync.Once
	tasks   sync.WaitGroup // releases, renewals and settlements under way
	ended   chan struct{}  // closed when Run's context ends: background retries give up
}

// timetable is when something is to be done about holds. Manager.mu guards it.
type timetable struct {
	schedule  agenda[*hold]     // when each is renewed, or looked at
	deadlines agenda[*hold]     // when each is told lost
	lanes     map[laneKey]*lane // of the renewals
}

type counters struct {
	granted, released, lost, renewed, renewalsFailed atomic.Int64
}

// Stats are counts since the start; Held and Waiting are the present numbers.
type Stats struct {
	Held, Waiting, Granted, Released, Lost, Renewed, RenewalsFailed int64
}

// New makes the engine that keeps its locks through ctl, which is nil with Options.Cluster. Nothing happens in Redis before Run.
func New(ctl *upstream.Control, o Options) *Manager {
	o = o.withDefaults()
	m := &Manager{
		opts: o, log: o.Logger, uuid: uuid.NewString(),
		life:  life{drained: make(chan struct{}), ended: make(chan struct{})},
		holds: map[lockstore.ID]*hold{},
		byKey: map[lockstore.LineKey]map[*hold]struct{}{},
		lines: map[lockstore.LineKey]*line{},
	}
	m.timetable = newTimetable()
	m.named, m.lossLog.wake = newNamedLosses(), make(chan struct{}, 1)
	m.done = newFinishedUnlocks()
	switch {
	case o.Cluster != nil:
		m.store = newDirect(m, newSharded(m, o.Cluster))
	case len(o.Quorum.Nodes) > 0:
		m.store = newQuorum(m, o.Quorum)
	default:
		m.store = newDirect(m, newSingle(m, ctl))
	}
	return m
}

func newTimetable() timetable {
	return timetable{schedule: newSchedule(), deadlines: newDeadlines(), lanes: map[laneKey]*lane{}}
}

func (m *Manager) newSubscriber(ctl *upstream.Control, back func()) *node.Subscriber {
	return node.NewSubscriber(ctl, node.SubscriberOptions{Warm: m.opts.WarmChannels, Logger: m.log, Back: back})
}

// UUID is the first part of every implicit owner of this process.
func (m *Manager) UUID() string { return m.uuid }

// Run keeps the watchdog, the wake-ups and Redis' clock until ctx ends; it returns when all of them and every release
// under way have ended.
func (m *Manager) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	for _, part := range append(m.store.parts(), m.watchDeadlines, m.watch, m.tellLog) {
		parts.Add(1)
		go runPart(ctx, &parts, part)
	}
	parts.Wait()
	close(m.ended)
	m.tasks.Wait()
	m.store.close()
	return nil
}

// Abort ends requests under way on a cluster, for a Run that does not end because a node hangs. Elsewhere the Control's Close
// does that.
func (m *Manager) Abort() { m.store.abort() }

func runPart(ctx context.Context, parts *sync.WaitGroup, part func(context.Context)) {
	defer parts.Done()
	part(ctx)
}

// Drain makes every new acquisition, those that wait included, end with DRAINING. Holders keep what they hold.
func (m *Manager) Drain() { m.drain.Do(func() { close(m.drained) }) }

func (m *Manager) draining() bool {
	select {
	case <-m.drained:
		return true
	default:
		return false
	}
}

var errDraining = &Error{"DRAINING", "this proxy is shutting down and gives no new locks"}

// Stats counts what this proxy did and has.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Stats{
		Granted: m.stats.granted.Load(), Released: m.stats.released.Load(), Lost: m.stats.lost.Load(),
		Renewed: m.stats.renewed.Load(), RenewalsFailed: m.stats.renewalsFailed.Load(),
	}
	for _, live := range m.byKey {
		s.Held += int64(len(live))
	}
	for _, l := range m.lines {
		s.Waiting += int64(l.waiters.Len())
	}
	return s
}

// background runs work that outlives the verb that began it; Run waits for it.
func (m *Manager) background(work func()) {
	m.tasks.Add(1)
	go m.runTask(work)
}

func (m *Manager) runTask(work func()) {
	defer m.tasks.Done()
	work()
}
