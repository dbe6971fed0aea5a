package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// store is where the locks are.
type store struct {
	name   string
	nodes  int
	quorum bool
}

var stores = []store{{"single", 1, false}, {"cluster", 3, false}, {"quorum3", 3, true}, {"quorum5", 5, true}}

// environment is what one run has: servers, proxies, users.
type environment struct {
	*history.Crew
	p     *profile
	store store
	gap   time.Duration
	seed  uint64

	w       *world.World
	cluster *world.Cluster
	nodes   []*world.Node
	proxies []*proxy
	running sync.WaitGroup // what is to end before the bubble does
	log     *slog.Logger
	uuids   *rand.ChaCha8

	limited    map[string]int // locks with LIMIT, and the most that may hold each: known at the end
	lengthened time.Duration  // how far clocks of nodes were set back in all, by which a lease may last longer
}

// proxy is one process with an engine. It can be killed and started anew.
type proxy struct {
	b     *environment
	n     int
	lives int

	mu  sync.Mutex
	now *engine // nil: it does not run
}

// engine is one life of a proxy.
type engine struct {
	name  string
	locks *lock.Manager
	dead  chan struct{} // closed when it is killed
	end   func()
}

func (b *environment) dice(part uint64) *rand.Rand { return rand.New(rand.NewPCG(b.seed, part)) }

// newEnvironment makes servers and proxies, in a bubble.
func newEnvironment(c combination, seed uint64, logs slog.Handler, commands *strings.Builder) *environment {
	p, s := c.p, c.s
	if logs == nil {
		logs = slog.DiscardHandler
	}
	b := &environment{p: p, store: s, gap: c.gap, seed: seed, w: world.New(seed), log: slog.New(logs)}
	b.Crew = &history.Crew{Recorder: history.NewRecorder()}
	b.uuids = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), byte(seed >> 32)})
	current.Store(b)
	var addrs []string
	for i := range s.nodes {
		addrs = append(addrs, fmt.Sprintf("10.0.0.%d:6379", i+1))
	}
	switch {
	case s.name == "cluster":
		b.cluster = b.w.NewCluster(addrs...)
		b.nodes = b.cluster.Nodes()
	default:
		for _, addr := range addrs {
			b.nodes = append(b.nodes, b.w.NewNode(addr))
		}
	}
	for _, n := range b.nodes {
		n.Age(24 * time.Hour)
		if commands != nil {
			n.Log(func(_ time.Time, n *world.Node, command []string, reply string) {
				fmt.Fprintf(commands, "%12s %s: %.300q -> %.200q\n", history.At(b.Now()), n.Addr(), command, reply)
			})
		}
	}
	for i := range max(p.proxies, 2) {
		x := &proxy{b: b, n: i}
		b.proxies = append(b.proxies, x)
		x.start()
		time.Sleep(time.Duration(1+b.dice(50).Int64N(1e6)) + time.Duration(i)*time.Millisecond) // no two have their timers at one instant
	}
	return b
}

// wire is the proxy's way to a node; each life has its own.
func (e *engine) wire(b *environment, node int) *world.Link {
	return b.w.Proxy(e.name).Link(b.nodes[node].Addr())
}

// start begins a life.
func (x *proxy) start() {
	b := x.b
	x.lives++
	e := &engine{name: fmt.Sprintf("proxy%d.%d", x.n, x.lives), dead: make(chan struct{})}
	o := b.p.options
	o.Logger = b.log.With("proxy", e.name)
	target := func(i int) upstream.Target {
		return upstream.Target{Network: "tcp", Addr: b.nodes[i].Addr(), User: "service", Password: "secret", Dialer: b.w.Proxy(e.name)}
	}
	for i := range b.nodes {
		if far := b.p.far; far > 0 {
			e.wire(b, i).Far(far/2*time.Duration(3+(i+x.n)%len(b.nodes)), far)
		}
	}
	var controls []*upstream.Control
	control := func(t upstream.Target) *upstream.Control {
		c := upstream.NewControl(t, upstream.ControlOptions{Logger: o.Logger})
		controls = append(controls, c)
		return c
	}
	closeAll := func() {
		for _, c := range controls {
			c.Close()
		}
	}
	switch {
	case b.cluster != nil:
		node := target(0)
		node.Addr = ""
		k, err := cluster.Open(context.Background(), upstream.ClusterTarget{Seeds: b.addrs(), Node: node},
			cluster.Options{Node: upstream.NodeOptions{Logger: o.Logger}})
		if err != nil {
			b.Blame(history.Violation{Oracle: "liveness", Text: "the cluster is not found: " + err.Error()})
			return
		}
		closeAll = k.Close
		e.locks = lock.New(sharded.Cluster(k, ""), o)
	case b.store.quorum:
		distinct, nodes := &upstream.Distinct{}, b.p.quorum
		for i, n := range b.nodes {
			t := target(i)
			t.MinUptime = nodes.MaxLease + nodes.MaxLease/100
			t.Vetter = distinct.Add(n.Addr(), t.MinUptime)
			nodes.Nodes = append(nodes.Nodes, quorum.Node{Name: n.Addr(), Control: control(t)})
		}
		e.locks = lock.New(quorum.Open(nodes), o)
	default:
		e.locks = lock.New(sharded.Single(control(target(0))), o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	b.running.Go(func() {
		defer close(ended)
		_ = e.locks.Run(ctx)
	})
	e.end = func() {
		cancel()
		b.running.Go(func() {
			late := time.AfterFunc(5*time.Second, func() { e.locks.Abort(); closeAll() })
			<-ended
			late.Stop()
			closeAll()
		})
	}
	x.mu.Lock()
	x.now = e
	x.mu.Unlock()
}

func (b *environment) addrs() (out []string) {
	for _, n := range b.nodes {
		out = append(out, n.Addr())
	}
	return out
}

// kill is kill -9: nothing more leaves the process, and its users' connections are gone.
func (x *proxy) kill() {
	x.mu.Lock()
	e := x.now
	x.now = nil
	x.mu.Unlock()
	if e == nil {
		return
	}
	for i := range x.b.nodes {
		e.wire(x.b, i).Cut()
	}
	close(e.dead)
	e.end()
}

func (x *proxy) engine() *engine {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.now
}

// close ends everything.
func (b *environment) close() {
	for _, x := range b.proxies {
		if e := x.engine(); e != nil {
			e.end()
		}
	}
	b.running.Wait()
	b.w.Close()
}
