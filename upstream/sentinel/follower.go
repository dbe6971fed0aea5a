// Package sentinel finds the master that Redis Sentinels name, and notices when it changes.
package sentinel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/upstream"
)

// resetTimeout is for how long the Sentinels must have named a lower config-epoch than the present one before it is
// accepted: only Sentinels that were set up anew go back.
const resetTimeout = 10 * time.Second

// Follower knows which Redis is the master, as the Sentinels of an upstream.Target say and the master itself confirms. It is that
// Target's Resolver: everything that dials the Target asks it, and when the master changes, every connection to the former one
// ends at once.
//
// It asks each Sentinel once a second, and all of them whenever one announces a change or a connection fails. The newest
// config-epoch decides, so that a Sentinel that is cut off, with an old view, cannot bring the former master back. While
// no Sentinel answers the last master known is used.
type Follower struct {
	// Static after construction.
	target  upstream.Target // Addr is empty
	log     *slog.Logger
	ctx     context.Context // ends when the follower is closed
	stop    context.CancelFunc
	running sync.WaitGroup
	peers   []*sentinel
	probe   probe // has a lock of its own

	mu       sync.Mutex  // guards all below
	views    []view      // what each Sentinel said last
	now      *masterTerm // nil: not known yet
	changed  chan struct{}
	switches int64
	lower    time.Time // since when the Sentinels' epoch has been lower than now's; zero: it is not
	hooks    []func()
}

// masterTerm is the time in which one Redis is the master.
type masterTerm struct {
	place
	confirmed bool // confirm has succeeded; guarded by Follower.mu
	ctx       context.Context
	end       context.CancelCauseFunc
}

// Follow asks t's Sentinels from now on, until Close, and sets t.Resolver: copies of t made from now on lead to
// the master. Call it once, when t is complete. log nil is slog.Default().
func Follow(t *upstream.Target, log *slog.Logger) *Follower {
	if log == nil {
		log = slog.Default()
	}
	f := &Follower{
		target: *t, log: log, changed: make(chan struct{}),
		views: make([]view, len(t.Sentinels.Addrs)),
		probe: probe{turn: make(chan struct{}, 1), again: make(chan struct{}, 1)},
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	t.Resolver = f
	for i, addr := range t.Sentinels.Addrs {
		s := &sentinel{f: f, index: i, addr: addr, wakeup: make(chan struct{}, 1)}
		f.peers = append(f.peers, s)
		f.running.Add(1)
		go s.run()
	}
	f.running.Add(1)
	go f.watchRole()
	return f
}

// Close stops asking; the last known master stays. It does not close the connections that Dial has made.
func (f *Follower) Close() {
	f.stop()
	f.running.Wait()
	f.probe.close()
}

// Doubt implements upstream.Resolver: the Sentinels and the master are asked again soon.
func (f *Follower) Doubt(context.Context) { f.askAgain() }

func (f *Follower) askAgain() {
	for _, s := range f.peers {
		s.wake()
	}
	f.probe.wake()
}

// OnSwitch implements upstream.Resolver: hook is called whenever the master is about to change, before anybody can reach the new
// one.
func (f *Follower) OnSwitch(hook func()) {
	f.mu.Lock()
	f.hooks = append(f.hooks, hook)
	f.mu.Unlock()
}

// Present implements upstream.Resolver: the master's address, "" when it is not known yet, and how often it has changed.
func (f *Follower) Present() (addr string, switches int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != nil {
		addr = f.now.addr
	}
	return addr, f.switches
}

// Moved implements upstream.Resolver.
func (f *Follower) Moved() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// report takes a Sentinel's answer, or the error in place of one, and follows another master if the answers name one.
func (f *Follower) report(index int, v view) {
	v.asked = true
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.views[index]
	f.views[index] = v
	f.logView(index, before, v)
	var now place
	if f.now != nil {
		now = f.now.place
	}
	to, ok := choose(f.views, now)
	switch {
	case !ok:
		if f.now == nil && f.unknown() != nil && before.err == nil {
			f.tellChanged() // those who wait for the first master are told why there is none
		}
		return
	case f.now == nil || to.epoch >= now.epoch:
		f.lower = time.Time{}
	case f.lower.IsZero():
		f.lower = time.Now()
		return
	case time.Since(f.lower) < resetTimeout:
		return
	default:
		f.lower = time.Time{}
	}
	if f.now != nil && to.addr == now.addr {
		f.now.epoch = to.epoch
		return
	}
	f.move(to)
}

func (f *Follower) logView(index int, before, v view) {
	switch {
	case v.err != nil && (before.err == nil || before.err.Error() != v.err.Error()):
		f.log.Warn("a Sentinel cannot be used", "sentinel", f.peers[index].addr, "master-name", f.target.Sentinels.Master, "error", v.err)
	case v.err == nil && before.err != nil:
		f.log.Info("a Sentinel answers again", "sentinel", f.peers[index].addr)
	}
}

// move makes the Redis at to the master that is followed. mu is held. The former one's term is over before the hooks are called: no
// reply that is read after them is its own.
func (f *Follower) move(to place) {
	former := f.now
	if former != nil {
		former.end(fmt.Errorf("%s is no longer the master, %s is", former.addr, to.addr))
		for _, hook := range f.hooks {
			hook()
		}
		f.switches++
		telemetry.MasterSwitches.Add(1)
		f.log.Warn("the master has changed", "master-name", f.target.Sentinels.Master, "from", former.addr, "to", to.addr, "epoch", to.epoch)
	} else {
		f.log.Info("the master is known", "master-name", f.target.Sentinels.Master, "addr", to.addr, "epoch", to.epoch)
	}
	f.now = newMasterTerm(to)
	f.tellChanged()
}

func newMasterTerm(at place) *masterTerm {
	t := &masterTerm{place: at}
	t.ctx, t.end = context.WithCancelCause(context.Background())
	return t
}

// demote ends all connections to a master that says that it is a master no longer. Connections are still tried at its address, and
// its role is asked each time, until the Sentinels name another master.
func (f *Follower) demote(t *masterTerm) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != t || !t.confirmed {
		return
	}
	t.end(notMaster(t.addr))
	for _, hook := range f.hooks {
		hook()
	}
	f.log.Warn("the master says that it is a master no longer, its connections are closed", "addr", t.addr)
	f.now = newMasterTerm(t.place)
}

// tellChanged wakes everybody who waits for a change. mu is held.
func (f *Follower) tellChanged() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// unknown says why no master is known yet; nil while Sentinels are still being asked for the first time. mu is held.
func (f *Follower) unknown() error {
	var last error
	for _, v := range f.views {
		if !v.asked {
			return nil
		}
		if _, said := rueidis.IsRedisErr(v.err); last == nil || said || errors.Is(v.err, errNoSuchMaster) {
			last = v.err // what a Sentinel has said tells more than that another one does not answer
		}
	}
	return fmt.Errorf("no master %q known: %w", f.target.Sentinels.Master, last)
}

// term returns the present master's term. It waits while the Sentinels are being asked for the first time.
func (f *Follower) term(ctx context.Context) (*masterTerm, error) {
	for {
		f.mu.Lock()
		now, changed := f.now, f.changed
		var why error
		if now == nil {
			why = f.unknown()
		}
		f.mu.Unlock()
		switch {
		case now != nil:
			return now, nil
		case why != nil:
			f.askAgain()
			return nil, why
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Dial implements upstream.Resolver: the connection is to a Redis that has just said it is a master.
func (f *Follower) Dial(ctx context.Context, timeout time.Duration) (net.Conn, context.Context, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	now, err := f.term(ctx)
	if err != nil {
		return nil, nil, err
	}
	attempt, giveUp := context.WithCancel(ctx)
	defer giveUp()
	defer context.AfterFunc(now.ctx, giveUp)()
	conn, err := upstream.Dial(attempt, f.at(now.addr), timeout)
	if err != nil {
		f.askAgain()
		return nil, nil, f.why(now, err)
	}
	if err := f.confirm(attempt, now); err != nil {
		conn.Close()
		f.askAgain()
		return nil, nil, f.why(now, err)
	}
	return conn, now.ctx, nil
}

// at is the Target of one address, Redis' or a Sentinel's.
func (f *Follower) at(addr string) upstream.Target {
	t := f.target
	t.Addr = addr
	return t
}

// why returns what has ended t meanwhile, or else err.
func (f *Follower) why(t *masterTerm, err error) error {
	if cause := context.Cause(t.ctx); cause != nil {
		return cause
	}
	return err
}

var _ upstream.Resolver = (*Follower)(nil)
