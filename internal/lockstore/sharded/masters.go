package sharded

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/tasks"
	"github.com/lockproxy/lockproxy/upstream"
)

// masters are the masters of a Redis Cluster. A lock is where the slot of its name is: all its keys and channels are
// there, too.
type masters struct {
	// static after construction
	host    lockstore.Host
	c       *cluster.Cluster
	pubsub  PubSub
	changed chan struct{} // one slot: the topology has changed
	ctx     context.Context
	stop    context.CancelFunc

	running tasks.Group // shards being closed, and questions to them

	// guarded by mu, which is taken under the engine's mutex and before node.Subscriber.mu
	mu            sync.Mutex
	closed        bool
	shards        map[*cluster.Node]*shard
	subscriptions map[string]*subscription
	followed
}

// followed is how far changes of the topology have been acted on.
type followed struct {
	seen   *cluster.Snapshot // the topology that shards, channels and holds were last adapted to
	second []movedSlots      // to be looked at once more
}

// clusterShard is what a shard of a cluster has in addition.
type clusterShard struct {
	is          *cluster.Node
	subscribers node.Subscribers // one for each kind of channel
	stop        context.CancelFunc
	parts       sync.WaitGroup

	// guarded by masters.mu
	users  int
	left   bool // it is no longer a master
	closed bool
}

func newMasters(h lockstore.Host, c *cluster.Cluster, by PubSub) *masters {
	m := &masters{
		host: h, c: c, pubsub: by, changed: make(chan struct{}, 1),
		shards: map[*cluster.Node]*shard{}, subscriptions: map[string]*subscription{},
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	c.OnChanged(m.topologyChanged)
	return m
}

func (m *masters) topologyChanged(_, _ *cluster.Snapshot) { retry.Wake(m.changed) }

// use is the shard of node, or with nil that which has the slot; nil: there is none. unuse ends the use.
func (m *masters) use(slot int, node *cluster.Node) *shard {
	if node == nil {
		node = m.c.Snapshot().Owner(slot)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sh := m.shardOf(node)
	if sh != nil {
		sh.users++
	}
	return sh
}

func (m *masters) unuse(sh *shard) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sh.users--
	if sh.left && sh.users == 0 {
		m.closeShard(sh)
	}
}

// shardOf is the shard of a node, opened if need be. mu is held.
func (m *masters) shardOf(n *cluster.Node) *shard {
	if n == nil || m.closed {
		return nil
	}
	sh := m.shards[n]
	if sh != nil {
		return sh
	}
	sh = &shard{
		Node: node.Node{Control: upstream.NewControl(n.Target(),
			upstream.ControlOptions{Logger: m.host.Log})}, clusterShard: clusterShard{is: n},
	}
	for _, sharded := range m.pubsub.Ways() {
		sh.subscribers = append(sh.subscribers, node.NewSubscriber(sh.Control, node.SubscriberOptions{
			Logger: m.host.Log, Back: func() { m.resubscribed(sh) },
			Sharded: sharded, Strayed: m.c.Refresh,
		}))
	}
	sh.steps = func() node.Steps { return node.Steps{Publish: m.verbOf(sh), Proxy: m.host.UUID} }
	sh.sample = func() error { return m.sampleOf(sh) }
	sh.site = func() node.Site { return m.site(sh) }
	m.shards[n] = sh
	ctx, stop := context.WithCancel(m.ctx)
	sh.stop = stop
	for _, s := range sh.subscribers {
		sh.parts.Go(func() { s.Run(ctx) })
	}
	sh.parts.Go(func() { sh.KeepTime(ctx, sh.sample, sh.site) })
	return sh
}

// closeShard ends a shard, once; requests under way there have an unknown outcome then. mu is held.
func (m *masters) closeShard(sh *shard) {
	if sh.closed {
		return
	}
	sh.closed = true
	if m.shards[sh.is] == sh {
		delete(m.shards, sh.is)
	}
	m.running.Go(func() { finish(sh) })
}

func finish(sh *shard) {
	sh.stop()
	sh.Control.Close()
	sh.parts.Wait()
}

// Run follows the topology until ctx ends, and lets go of all shards when requests has ended.
func (m *masters) Run(ctx, requests context.Context) {
	closed := make(chan struct{})
	context.AfterFunc(requests, func() {
		defer close(closed)
		m.closeAll()
	})
	m.follow(ctx)
	<-closed
	m.running.Wait()
}

// closeAll closes all shards. It does not wait.
func (m *masters) closeAll() {
	m.stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, sh := range m.shards {
		m.closeShard(sh)
	}
}

func (m *masters) Location(key string) lockstore.Location {
	slot := cluster.Slot([]byte(key))
	return lockstore.Location{Node: m.c.Snapshot().Owner(slot), Slot: slot, AtOnce: renewSmall}
}

// permitted waits until it is known what the shard of a name can do.
func (m *masters) permitted(ctx context.Context, most time.Duration, name string) (refused, err error) {
	sh := m.use(cluster.Slot([]byte(name)), nil)
	if sh == nil {
		return nil, nil
	}
	defer m.unuse(sh)
	return sh.Admit(ctx, most, sh.site)
}

func (m *masters) able() (all []lockstore.Ability) {
	for _, n := range m.c.Snapshot().Masters {
		m.mu.Lock()
		sh := m.shardOf(n)
		m.mu.Unlock()
		one := lockstore.Ability{Node: n.Addr, Err: lockstore.ErrUntried}
		if sh != nil {
			one.Err = sh.Able()
		}
		all = append(all, one)
	}
	return all
}

func (m *masters) site(sh *shard) node.Site {
	return node.Site{Node: &sh.Node, Log: m.host.Log.With("node", sh.is.Addr), Run: m.running.Go, PubSub: m.pubsub,
		UUID: m.host.UUID, Has: func(name string) bool { return m.on(sh, name) }}
}

// verbOf is the command with which the scripts publish at a shard.
func (m *masters) verbOf(sh *shard) string {
	// This takes no longer than one or two questions; the script is sent whatever the answer is.
	_, _ = sh.Admit(context.Background(), 0, sh.site)
	return cmp.Or(sh.Account.Verb(), m.pubsub.Verb())
}

// follow adapts everything to the topology whenever that changes, until ctx ends.
func (m *masters) follow(ctx context.Context) {
	again := time.NewTimer(lookLater)
	defer again.Stop()
	m.sync()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
			m.sync()
		case now := <-again.C:
			m.lookAgain(now)
		}
		if next, due := m.nextLook(); due {
			again.Reset(time.Until(next))
		}
	}
}

// sync opens the masters that are new, lets go of those that are none any more, moves the channels to where their slots
// are, and makes the engine check the locks of slots that moved.
func (m *masters) sync() {
	now := m.c.Snapshot()
	m.mu.Lock()
	before := m.seen
	m.seen = now
	for _, n := range now.Masters {
		m.shardOf(n)
	}
	gone := movedSlots{before: before, now: now, at: time.Now()}
	if before != nil {
		gone.shards = m.successions(before, now)
	}
	m.rehome(now)
	m.retire(now)
	if before != nil {
		gone.again = time.Now().Add(lookLater)
		m.second = append(m.second, gone)
	}
	m.mu.Unlock()
	if before != nil {
		m.lookAt(gone)
		for _, s := range gone.shards {
			m.host.Background(func() { m.compareClocks(gone, s) })
		}
	}
}

// retire closes shards whose nodes have failed at once, so that nobody waits for their replies, and others when the
// last request there is over. mu is held.
func (m *masters) retire(now *cluster.Snapshot) {
	master, alive := map[*cluster.Node]bool{}, map[*cluster.Node]bool{}
	for _, n := range now.Masters {
		master[n] = true
	}
	for _, n := range now.All() {
		alive[n] = true
	}
	for n, sh := range m.shards {
		sh.left = !master[n]
		if !alive[n] || sh.left && sh.users == 0 {
			m.closeShard(sh)
		}
	}
}

// sampleOf asks a shard for its time.
func (m *masters) sampleOf(sh *shard) error {
	jump, err := sh.Sample()
	if err != nil || jump.By == 0 {
		return err
	}
	m.host.Log.Warn("the clock of a node jumped, checking every lock there", "node", sh.is.Addr, "by", jump.By)
	m.recheck(sh, lockstore.Clock)
	return nil
}
