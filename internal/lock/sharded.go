package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/upstream"
)

// sharded is the masters of a Redis Cluster. A lock is where the slot of its name is: all its keys and channels are there, too.
//
// Each master has a clock of its own, while what is remembered here of a request goes by the proxy's: see notAfterMark.
type sharded struct {
	// static after construction
	m     *Manager
	c     *cluster.Cluster
	began time.Time // from then on the proxy's clock is taken
	placeholders
	changed chan struct{} // one slot: the topology is another
	ctx     context.Context
	stop    context.CancelFunc
	lost    atomic.Int64 // until when a request whose reply was lost may be done, in µs of the proxy's clock

	running sync.WaitGroup // shards being closed, and questions to them

	// guarded by mu, which is taken under Manager.mu and before node.Subscriber.mu
	mu     sync.Mutex
	closed bool
	seen   *cluster.Snapshot // that shards, channels and holds were last brought in line with
	shards map[*cluster.Node]*shard
	heard  map[string]*hearing
	second []moved // to be looked at once more
}

// placeholders stand in the arguments of a script for what is known only when it is sent, and to which node: see notAfterMark.
type placeholders struct {
	mark string // for the not-after
	verb string // for the command to publish with
}

// member is what a shard of a cluster is besides.
type member struct {
	is          *cluster.Node
	subscribers node.Subscribers // one for each kind of channel
	stop        context.CancelFunc
	parts       sync.WaitGroup

	regress atomic.Int64 // after its clock jumped back: until it is past this, late requests may still be done there

	// guarded by sharded.mu
	users  int
	left   bool // it is a master no more
	closed bool
}

func newSharded(m *Manager, c *cluster.Cluster) *sharded {
	f := &sharded{
		m: m, c: c, began: time.Now(), placeholders: placeholders{mark: notAfterMark(), verb: notAfterMark()}, changed: make(chan struct{}, 1),
		shards: map[*cluster.Node]*shard{}, heard: map[string]*hearing{},
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	c.OnChanged(func(_, _ *cluster.Snapshot) { signal(f.changed) })
	return f
}

// use is the shard that node stands for, or (nil) that has the slot; nobody may be it. unuse ends the use.
func (f *sharded) use(slot int, node *cluster.Node) *shard {
	if node == nil {
		node = f.c.Snapshot().Owner(slot)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	mb := f.shardOf(node)
	if mb != nil {
		mb.users++
	}
	return mb
}

func (f *sharded) unuse(mb *shard) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mb.users--
	if mb.left && mb.users == 0 {
		f.closeShard(mb)
	}
}

// shardOf is the shard of a node, opened if need be. mu is held.
func (f *sharded) shardOf(n *cluster.Node) *shard {
	if n == nil || f.closed {
		return nil
	}
	mb := f.shards[n]
	if mb != nil {
		return mb
	}
	o := f.m.opts
	mb = &shard{
		Node: node.Node{Control: upstream.NewControl(n.Target(), upstream.ControlOptions{Logger: o.Logger})}, member: member{is: n},
	}
	for _, sharded := range o.ClusterPubSub.Ways() {
		mb.subscribers = append(mb.subscribers, node.NewSubscriber(mb.Control, node.SubscriberOptions{
			Warm: o.WarmChannels, Logger: o.Logger, Back: func() { f.resubscribed(mb) },
			Sharded: sharded, Echo: !sharded && o.ClusterPubSub == node.PubSubBoth, Strayed: f.c.Refresh,
		}))
	}
	f.shards[n] = mb
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

// closeShard ends a shard, once; requests under way there have an unknown outcome then. mu is held.
func (f *sharded) closeShard(mb *shard) {
	if mb.closed {
		return
	}
	mb.closed = true
	if f.shards[mb.is] == mb {
		delete(f.shards, mb.is)
	}
	f.running.Add(1)
	go f.finishShard(mb)
}

func (f *sharded) finishShard(mb *shard) {
	defer f.running.Done()
	mb.stop()
	mb.Control.Close()
	mb.parts.Wait()
}

// background runs what ends when its shard is closed, at the latest.
func (f *sharded) background(work func()) {
	f.running.Add(1)
	go f.runTask(work)
}

func (f *sharded) runTask(work func()) {
	defer f.running.Done()
	work()
}

// close closes all shards.
func (f *sharded) close() {
	f.abort()
	f.running.Wait()
}

// abort is close for those that hang: it does not wait.
func (f *sharded) abort() {
	f.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, mb := range f.shards {
		f.closeShard(mb)
	}
}

func (f *sharded) parts() []func(context.Context) { return []func(context.Context){f.follow} }

func (f *sharded) fits(name string) error {
	if lockstore.Clusterable(name) {
		return nil
	}
	return &Error{"ERR", "'" + printable(name) + "' cannot be a lock on a cluster: its braces are no hash tag, so its keys and " +
		"channels would be on different nodes; use a name without braces, or with one {tag}"}
}

func (f *sharded) slot(key string) int { return cluster.Slot([]byte(key)) }

func (f *sharded) lane(key string) (at *cluster.Node, places int) {
	return f.c.Snapshot().Owner(f.slot(key)), renewSmall
}

func (f *sharded) publishing() string { return f.verb }

func (f *sharded) now() int64 { return f.began.UnixMicro() + time.Since(f.began).Microseconds() }

func (f *sharded) notAfter(ctx context.Context) (text string, at int64, err error) {
	return f.mark, f.now() + allowed(ctx).Microseconds(), nil
}

func (f *sharded) sample() error { return nil } // see wasLate

func (f *sharded) wasLate(mb *shard) { _ = f.sampleOf(mb) }

// follow brings everything in line with the topology whenever that changes, until ctx ends.
func (f *sharded) follow(ctx context.Context) {
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
func (f *sharded) sync() {
	now := f.c.Snapshot()
	f.mu.Lock()
	before := f.seen
	f.seen = now
	for _, n := range now.Masters {
		f.shardOf(n)
	}
	gone := moved{before: before, now: now}
	if before != nil {
		gone.shards = f.successions(before, now)
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
		for _, s := range gone.shards {
			f.m.background(func() { f.compareClocks(gone, s) })
		}
	}
}

// retire closes shards whose nodes have failed at once, so that nobody waits for their replies, and others when the last
// request there is over. mu is held.
func (f *sharded) retire(now *cluster.Snapshot) {
	master, alive := map[*cluster.Node]bool{}, map[*cluster.Node]bool{}
	for _, n := range now.Masters {
		master[n] = true
	}
	for _, n := range now.All() {
		alive[n] = true
	}
	for n, mb := range f.shards {
		mb.left = !master[n]
		if !alive[n] || mb.left && mb.users == 0 {
			f.closeShard(mb)
		}
	}
}

// keepTime samples a shard's clock until ctx ends.
func (f *sharded) keepTime(ctx context.Context, mb *shard) {
	node.KeepTime(ctx, func() {
		if err := f.sampleOf(mb); err != nil {
			f.m.log.Debug("cannot read the clock of a node", "node", mb.is.Addr, "error", err)
		} else {
			mb.Account.AskWhenDue(f.site(mb))
		}
	})
}

// sampleOf asks a shard for its time.
func (f *sharded) sampleOf(mb *shard) error {
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
