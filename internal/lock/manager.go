// Package lock is what a lock is: taken, waited for, renewed, lost and given back, as plain Go calls. The state lives
// in Redis, in Redisson's bytes; a Manager keeps beside it what one proxy must know: who of its clients holds what,
// until when, and who waits.
package lock

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/tasks"
)

// Manager is the lock engine of one proxy process. All methods are safe for concurrent use.
type Manager struct {
	// static after construction
	opts  ManagerOptions
	log   *slog.Logger
	uuid  string
	store lockstore.Store
	rules lockstore.Rules
	*life
	*counts

	// Its parts. Each has the fields that its mutex guards, and calls those before it only; docs/CONCURRENCY.md has the
	// order of mutexes.
	shares    *shares
	leases    *leases
	holds     *holds
	lines     *lines
	giveBacks *giveBacks
	watchdog  *watchdog
}

// life counts what is under way, and ends it.
type life struct {
	drained chan struct{} // closed by Drain
	drain   sync.Once
	tasks   tasks.Group   // releases, renewals and settlements under way
	ended   chan struct{} // closed when Run's context ends: background retries give up

	requests    context.Context // ends when requests under way are ended
	endRequests context.CancelFunc
}

// New makes the engine that keeps its locks in a store. Nothing happens in Redis before Run.
func New(open lockstore.Opener, o ManagerOptions) *Manager {
	o = o.withDefaults()
	m := &Manager{
		opts: o, log: o.Logger, uuid: o.UUID,
		life:   &life{drained: make(chan struct{}), ended: make(chan struct{})},
		counts: newCounts(),
		shares: &shares{log: o.Logger, locks: map[User]int64{}},
	}
	m.leases = newLeases(o.Events, m.shares)
	m.holds = newHolds(o, m.counts)
	m.lines = newLines(m.life, o, m.holds)
	m.giveBacks = newGiveBacks(m.life, o, m.holds, m.lines)
	m.watchdog = newWatchdog(m.life, o, m.holds, m.giveBacks)
	m.store, m.rules = open(m.host())
	m.requests, m.endRequests = context.WithCancel(context.Background())
	m.holds.store, m.holds.votes, m.holds.drift = m.store, m.rules.Votes, m.rules.Drift
	m.lines.store, m.giveBacks.store, m.watchdog.store, m.leases.vacate = m.store, m.store, m.store, m.store.Vacate
	return m
}

// host is what the store knows of the engine.
func (m *Manager) host() lockstore.Host {
	return lockstore.Host{
		UUID: m.uuid, Log: m.log,
		Background: m.background, Sleep: m.sleep, Recheck: m.holds.recheckIf, Wake: m.lines.wakeIf, Shorten: m.holds.shorten,
	}
}

// UUID is the first part of the owner that each connection of this process is.
func (m *Manager) UUID() string { return m.uuid }

// Run runs the watchdog, the wake-ups and Redis' clock until ctx ends; it returns when all of them and every release
// under way have ended.
func (m *Manager) Run(ctx context.Context) error {
	var store, parts sync.WaitGroup
	store.Go(func() { m.store.Run(ctx, m.requests) })
	for _, part := range []func(context.Context){m.holds.watchDeadlines, m.leases.watchLeases, m.watchdog.watch} {
		parts.Go(func() { part(ctx) })
	}
	parts.Wait()
	close(m.ended)
	m.tasks.Wait()
	m.endRequests()
	store.Wait()
	m.tasks.Wait() // what the store has begun meanwhile
	return nil
}

// Abort ends requests under way on a cluster, for a Run that does not end because a node hangs. Elsewhere the Control's
// Close does that.
func (m *Manager) Abort() { m.endRequests() }

// Drain makes every new acquisition, those that wait included, end with DRAINING. Holders keep what they hold.
func (m *Manager) Drain() { m.drain.Do(func() { close(m.drained) }) }

func (l *life) draining() bool {
	select {
	case <-l.drained:
		return true
	default:
		return false
	}
}

var errDraining = &Error{Code: "DRAINING", Text: "this proxy is shutting down and gives no new locks"}

// LimitUsers bounds how many locks the clients of one user may hold or wait for; 0: no limit. Those that have more keep them.
func (m *Manager) LimitUsers(most int) { m.shares.most.Store(int64(most)) }

// background runs work that outlives the verb that began it; Run waits for it.
func (l *life) background(work func()) { l.tasks.Go(work) }

// Reentry says when a connection may take again a lock that it holds itself.
type Reentry string

const (
	// reentryAuto refuses it on a connection that has named a client library: in a pool two threads would both
	// "re-enter".
	reentryAuto Reentry = "auto"
	// reentryAlways allows it on every connection.
	reentryAlways Reentry = "always"
	// reentryNever wants OWNER or SELF on every connection.
	reentryNever Reentry = "never"
)

// ManagerOptions set up a Manager. A zero field has the default named beside it.
type ManagerOptions struct {
	// Lease of a lock taken without EX or PX, renewed at a third of it: 30 s, Redisson's lockWatchdogTimeout.
	Watchdog time.Duration
	Poll     time.Duration // longest time between two tries of a waiter that no message wakes: 3 s
	MaxHold  time.Duration // a watched lock is not renewed beyond it: 0, off
	Reentry  Reentry       // auto
	Logger   *slog.Logger  // slog.Default()
	Events   *events.Log   // gets what happens to locks: nil, nobody does
	UUID     string        // the first part of the owner that each connection is: a new one
}

func (o ManagerOptions) withDefaults() ManagerOptions {
	o.Watchdog = cmp.Or(o.Watchdog, 30*time.Second)
	o.Poll = cmp.Or(o.Poll, 3*time.Second)
	o.Reentry = cmp.Or(o.Reentry, reentryAuto)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.UUID = cmp.Or(o.UUID, uuid.NewString())
	return o
}
