// Package sentinel finds the master that Redis Sentinels name, and notices when it changes.
package sentinel

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// Follower knows which Redis is the master, as the Sentinels of an upstream.Target say and the master itself confirms.
// It is that Target's Resolver: everything that dials the Target asks it, and when the master changes, every connection
// to the former one ends at once.
//
// It asks each Sentinel once a second, and all of them whenever one announces a change or a connection fails. The
// newest config-epoch decides, so that a Sentinel that is cut off, with an old view, cannot bring the former master
// back. Within one epoch, or with an older one, a majority decides. While no Sentinel answers the last master known is used.
// rueidis' own Sentinel mode cannot start while all Sentinels are down, and cannot be told to drop what it has.
type Follower struct {
	// Static after construction.
	target  upstream.Target // Addr is empty
	log     *slog.Logger
	ctx     context.Context // ends when the follower is closed
	stop    context.CancelFunc
	running sync.WaitGroup
	peers   []*sentinel
	probe   probe // has a lock of its own

	upstream.Terms // of the masters

	mu      sync.Mutex // guards all below; taken before that of Terms
	council council
}

// Follow asks t's Sentinels from now on, until Close, and sets t.Resolver: copies of t made from now on lead to
// the master. Call it once, when t is complete. log nil is slog.Default().
func Follow(t *upstream.Target, log *slog.Logger) *Follower {
	if log == nil {
		log = slog.Default()
	}
	f := &Follower{
		target: *t, log: log, council: council{statements: make([]statement, len(t.Sentinels.Addrs))},
		probe: probe{turn: make(chan struct{}, 1), again: make(chan struct{}, 1)},
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	t.Resolver = f
	for i, addr := range t.Sentinels.Addrs {
		s := &sentinel{f: f, index: i, addr: addr, wakeup: make(chan struct{}, 1)}
		f.peers = append(f.peers, s)
		f.running.Add(1)
		go s.follow()
	}
	f.running.Add(1)
	go f.watchRole()
	return f
}

// Close stops asking; the last known master stays. It does not close the connections that Dial has made.
func (f *Follower) Close() {
	f.stop()
	f.running.Wait()
	f.probe.closeConn()
}

// Check implements upstream.Resolver: the Sentinels and the master are asked again soon.
func (f *Follower) Check(context.Context) { f.askAgain() }

func (f *Follower) askAgain() {
	for _, s := range f.peers {
		s.wake()
	}
	f.probe.wake()
}

// report takes a Sentinel's answer, or the error in place of one, and follows another master if the answers name one.
func (f *Follower) report(index int, v statement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.council.statements[index]
	f.logView(index, before, v)
	moved := f.council.hear(index, v, time.Now())
	switch {
	case moved:
		f.follow(f.council.now)
	case before.err == nil && f.council.unknown() != nil:
		f.Announce() // those who wait for the first master are told why there is none
	}
}

func (f *Follower) logView(index int, before, v statement) {
	switch {
	case v.err != nil && (before.err == nil || before.err.Error() != v.err.Error()):
		name := f.target.Sentinels.Master
		f.log.Warn("a Sentinel cannot be used", "sentinel", f.peers[index].addr, "master-name", name, "error", v.err)
	case v.err == nil && before.err != nil:
		f.log.Info("a Sentinel answers again", "sentinel", f.peers[index].addr)
	}
}

// follow follows another master from now on, or the first one. The former one's term is over before the hooks are
// called: no reply that is read after them is its own.
func (f *Follower) follow(to masterAddress) {
	name := f.target.Sentinels.Master
	if former, _ := f.Now(); former == nil {
		f.log.Info("the master is known", "master-name", name, "addr", to.addr, "epoch", to.epoch)
		f.Begin(to.addr)
	} else {
		f.End(former, to.addr, true, fmt.Errorf("%s is no longer the master, %s is", former.Addr, to.addr))
		f.log.Warn("the master has changed", "master-name", name, "from", former.Addr, "to", to.addr, "epoch", to.epoch)
	}
	f.Announce()
}

// term returns the present master's term. It waits while the Sentinels are being asked for the first time.
func (f *Follower) term(ctx context.Context) (*upstream.Term, error) {
	for {
		now, changed := f.Now()
		if now != nil {
			return now, nil
		}
		f.mu.Lock()
		why := f.council.unknown()
		f.mu.Unlock()
		if why != nil {
			f.askAgain()
			return nil, fmt.Errorf("no master %q known: %w", f.target.Sentinels.Master, why)
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
	defer context.AfterFunc(now, giveUp)()
	conn, err := upstream.Dial(attempt, f.at(now.Addr), timeout)
	if err != nil {
		f.askAgain()
		return nil, nil, f.why(now, err)
	}
	if err := f.confirm(attempt, now); err != nil {
		conn.Close()
		f.askAgain()
		return nil, nil, f.why(now, err)
	}
	return conn, now, nil
}

// at is the Target of one address, Redis' or a Sentinel's.
func (f *Follower) at(addr string) upstream.Target {
	t := f.target
	t.Addr = addr
	return t
}

// why returns what has ended t meanwhile, or else err.
func (f *Follower) why(t *upstream.Term, err error) error {
	if cause := context.Cause(t); cause != nil {
		return cause
	}
	return err
}

var _ upstream.Resolver = (*Follower)(nil)
