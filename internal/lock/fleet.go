package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/upstream"
)

// fleet is the masters of a Redis Cluster. A lock is where the slot of its name is: all its keys and channels are there, too.
//
// Each master has a clock of its own, while what is remembered here of a request goes by the proxy's: see notAfterMark.
type fleet struct {
	// static after construction
	m       *Manager
	c       *cluster.Cluster
	mark    string        // see notAfterMark
	verb    string        // stands for the command to publish with, which the node decides
	changed chan struct{} // one slot: the topology is another
	ctx     context.Context
	stop    context.CancelFunc
	lost    atomic.Int64 // until when a request whose reply was lost may be done, in µs of the proxy's clock

	running sync.WaitGroup // members being closed, and questions to them

	// guarded by mu, which is taken under Manager.mu and before node.Subscriber.mu
	mu      sync.Mutex
	closed  bool
	seen    *cluster.Snapshot // that members, channels and holds were last brought in line with
	members map[*cluster.Node]*member
	heard   map[string]*hearing
	second  []moved // to be looked at once more
}

// member is one master: what a Manager has of a single Redis.
type member struct {
	node.Node
	is          *cluster.Node
	account     account
	subscribers node.Subscribers // one for each kind of channel
	stop        context.CancelFunc
	parts       sync.WaitGroup

	regress atomic.Int64 // after its clock jumped back: until it is past this, late requests may still be done there

	// guarded by fleet.mu
	users  int
	left   bool // it is a master no more
	closed bool
}

func newFleet(m *Manager, c *cluster.Cluster) *fleet {
	f := &fleet{
		m: m, c: c, mark: notAfterMark(), verb: notAfterMark(), changed: make(chan struct{}, 1),
		members: map[*cluster.Node]*member{}, heard: map[string]*hearing{},
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	c.OnChanged(func(_, _ *cluster.Snapshot) { signal(f.changed) })
	return f
}

// use is the member that node stands for, or (nil) that has the slot; nobody may be it. unuse ends the use.
func (f *fleet) use(slot int, node *cluster.Node) *member {
	if node == nil {
		node = f.c.Snapshot().Owner(slot)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	mb := f.memberOf(node)
	if mb != nil {
		mb.users++
	}
	return mb
}

func (f *fleet) unuse(mb *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mb.users--
	if mb.left && mb.users == 0 {
		f.close(mb)
	}
}

// memberOf is the member of a node, opened if need be. mu is held.
func (f *fleet) memberOf(n *cluster.Node) *member {
	if n == nil || f.closed {
		return nil
	}
	mb := f.members[n]
	if mb != nil {
		return mb
	}
	o := f.m.opts
	mb = &member{
		is: n, Node: node.Node{Control: upstream.NewControl(n.Target(), upstream.ControlOptions{Logger: o.Logger})},
	}
	for _, sharded := range o.ClusterPubSub.ways() {
		mb.subscribers = append(mb.subscribers, node.NewSubscriber(mb.Control, node.SubscriberOptions{
			Warm: o.WarmChannels, Logger: o.Logger, Back: func() { f.resubscribed(mb) },
			Sharded: sharded, Echo: !sharded && o.ClusterPubSub == PubSubBoth, Strayed: f.c.Refresh,
		}))
	}
	f.members[n] = mb
	ctx, stop := context.WithCancel(f.ctx)
	mb.stop = stop
	for _, s := range mb.subscribers {
		mb.parts.Add(1)
		go runPart(ctx, &mb.parts, s.Run)
	}
	mb.parts.Add(1)
	go runPart(ctx, &mb.parts, func(ctx context.Context) { f.keepTime(ctx, mb) })
	return mb
}

// close ends a member, once; requests under way there have an unknown outcome then. mu is held.
func (f *fleet) close(mb *member) {
	if mb.closed {
		return
	}
	mb.closed = true
	if f.members[mb.is] == mb {
		delete(f.members, mb.is)
	}
	f.running.Add(1)
	go f.closeMember(mb)
}

func (f *fleet) closeMember(mb *member) {
	defer f.running.Done()
	mb.stop()
	mb.Control.Close()
	mb.parts.Wait()
}

// background runs what ends when its member is closed, at the latest.
func (f *fleet) background(work func()) {
	f.running.Add(1)
	go f.runTask(work)
}

func (f *fleet) runTask(work func()) {
	defer f.running.Done()
	work()
}

// end closes all members.
func (f *fleet) end() {
	f.abort()
	f.running.Wait()
}

// abort is end for those that hang: it does not wait.
func (f *fleet) abort() {
	f.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, mb := range f.members {
		f.close(mb)
	}
}

// follow brings everything in line with the topology whenever that changes, until ctx ends.
func (f *fleet) follow(ctx context.Context) {
	ticker := time.NewTicker(lookLater / 4)
	defer ticker.Stop()
	f.sync()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
			f.sync()
		case now := <-ticker.C:
			f.lookAgain(now)
		}
	}
}

// sync opens the masters that are new, lets go of those that are none any more, moves the channels to where their slots are, and
// has the locks of slots that moved looked at there.
func (f *fleet) sync() {
	now := f.c.Snapshot()
	f.mu.Lock()
	before := f.seen
	f.seen = now
	for _, n := range now.Masters {
		f.memberOf(n)
	}
	gone := moved{before: before, now: now}
	if before != nil {
		gone.members = f.successions(before, now)
	}
	f.rehome(now)
	f.retire(now)
	if before != nil {
		gone.again = time.Now().Add(lookLater)
		f.second = append(f.second, gone)
	}
	f.mu.Unlock()
	if before != nil {
		f.lookAt(gone)
		for _, s := range gone.members {
			f.m.background(func() { f.compareClocks(gone, s) })
		}
	}
}

// retire closes members whose nodes have failed at once, so that nobody waits for their replies, and others when the last
// request there is over. mu is held.
func (f *fleet) retire(now *cluster.Snapshot) {
	master, alive := map[*cluster.Node]bool{}, map[*cluster.Node]bool{}
	for _, n := range now.Masters {
		master[n] = true
	}
	for _, n := range now.All() {
		alive[n] = true
	}
	for n, mb := range f.members {
		mb.left = !master[n]
		if !alive[n] || mb.left && mb.users == 0 {
			f.close(mb)
		}
	}
}

// keepTime samples a member's clock until ctx ends.
func (f *fleet) keepTime(ctx context.Context, mb *member) {
	node.KeepTime(ctx, func() {
		if err := f.sample(mb); err != nil {
			f.m.log.Debug("cannot read the clock of a node", "node", mb.is.Addr, "error", err)
		} else {
			f.m.askAccount(&mb.account, f.site(mb))
		}
	})
}

// sample asks a member for its time.
func (f *fleet) sample(mb *member) error {
	jump, err := mb.Sample()
	if err != nil || jump == 0 {
		return err
	}
	f.m.log.Warn("the clock of a node jumped, checking every lock there", "node", mb.is.Addr, "by", jump)
	if jump < 0 {
		now, _ := mb.Clock.Now()
		mb.regress.Store(max(mb.regress.Load(), now-jump.Microseconds()+lateMost.Microseconds()))
	}
	f.recheck(mb, reasonClock)
	return nil
}
