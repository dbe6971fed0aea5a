package history

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The locks of a quorum are on nodes of their own; each proxy has a wire of its own to each. What hurts them is over when a
// majority of them may still be young, so these profiles have no harm that kills nodes all the time.

// node is one of a quorum's.
type node struct {
	*testredis.Server
	hurt sync.Mutex // one harm at a time
}

// rates are what the nodes' clocks gain in parts per million: two differ by 1 % at most, which is the bound that drift allows for.
var rates = []int64{5000, -5000, 2500, 0, -2500}

// addNodes starts the nodes of a quorum.
func (b *environment) addNodes(n int) {
	for i := range n {
		c, err := testredis.NewClock(b.t, rates[i%len(rates)])
		if err != nil {
			if i == 0 {
				b.t.Log("*** CLOCK DRIFT NOT TESTED:", err, "***")
			}
			b.nodes = append(b.nodes, &node{Server: testredis.Start(b.t)})
			continue
		}
		b.nodes = append(b.nodes, &node{Server: testredis.StartWithClock(b.t, c)})
		c.Step(time.Minute) // it is old enough to count
	}
}

// reachNodes gives a proxy its wires to the nodes.
func (b *environment) reachNodes(p *proxy) {
	for _, n := range b.nodes {
		wire := testredis.NewProxy(b.t, n.Addr())
		p.links = append(p.links, wire)
		p.args = append(p.args, "--quorum", "redis://"+wire.Addr())
	}
}

// spread has each proxy far from all nodes, and nearest to another one.
func (b *environment) spread() {
	for i, p := range b.proxies {
		for k, wire := range p.links {
			wire.Latency(time.Duration(15+5*((i+k)%len(p.links))) * time.Millisecond)
		}
	}
}

// awaitNodes waits until all nodes count at every proxy.
func (b *environment) awaitNodes() {
	for _, p := range b.proxies {
		for end := time.Now().Add(history.NoReply); ; time.Sleep(50 * time.Millisecond) {
			info := p.ask("INFO", "lockproxy")
			if strings.Count(info, ",state=up,") == len(b.nodes) {
				break
			}
			if time.Now().After(end) {
				b.t.Fatalf("the nodes never count: %s", info)
			}
		}
	}
}

// drifted is what clients may count on.
func (p *profile) drifted(ops []*history.Op) ([]*history.Op, int64) {
	return history.Drifted(ops, p.watchdog.Nanoseconds(), p.nodes > 0)
}

// anyNode hurts one node for a while; the harm is skipped when another one is at it.
func (n *nemesis) anyNode(f func(*node, int)) {
	i := n.dice.IntN(len(n.nodes))
	x := n.nodes[i]
	if !x.hurt.TryLock() {
		return
	}
	defer x.hurt.Unlock()
	f(x, i)
}

// moment is a time within which a node is in trouble: from far below its time-out to longer than leases.
func (n *nemesis) moment() time.Duration {
	if n.dice.IntN(3) == 0 {
		return n.watchdog + time.Duration(n.dice.Int64N(int64(n.watchdog)))
	}
	return time.Duration(20+n.dice.IntN(500)) * time.Millisecond
}

// stopNode freezes a node.
func stopNode(n *nemesis) {
	n.anyNode(func(x *node, i int) {
		d := n.moment()
		n.r.Fault(history.ServerStopped, fmt.Sprintf("stop node %d for %v", i, d))
		x.Stop()
		n.wait(d)
		x.Cont()
	})
}

// restartNode has a node forget everything.
func restartNode(n *nemesis) {
	n.anyNode(func(x *node, i int) {
		n.r.Fault(history.ServerEmpty, fmt.Sprint("restart node ", i, ", empty"))
		x.Restart()
		n.wait(n.watchdog)
	})
}

// stopMajority freezes all but a minority of the nodes.
func stopMajority(n *nemesis) {
	d := time.Duration(20+n.dice.IntN(1000)) * time.Millisecond
	var stopped []*node
	for _, i := range n.dice.Perm(len(n.nodes)) {
		if x := n.nodes[i]; len(stopped) <= len(n.nodes)/2 && x.hurt.TryLock() {
			x.Stop()
			stopped = append(stopped, x)
		}
	}
	n.r.Fault(history.ServerStopped, fmt.Sprintf("stop %d nodes for %v", len(stopped), d))
	n.wait(d)
	for _, x := range stopped {
		x.Cont()
		x.hurt.Unlock()
	}
}

// link picks one proxy's wire to one node.
func (n *nemesis) link() (*testredis.Proxy, string) {
	p, i := n.proxy()
	if len(p.links) == 0 {
		return p.wire, fmt.Sprint("wire of proxy ", i)
	}
	k := n.dice.IntN(len(p.links))
	return p.links[k], fmt.Sprintf("wire of proxy %d to node %d", i, k)
}

func resetLink(n *nemesis) {
	l, name := n.link()
	n.r.Fault(history.Cut, "reset the "+name)
	l.ResetAll()
}

func closeLink(n *nemesis) {
	l, name := n.link()
	d := n.moment()
	n.r.Fault(history.Cut, fmt.Sprintf("cut the %s for %v", name, d))
	l.Disable()
	n.wait(d)
	l.Enable()
}

func swallowLink(n *nemesis) {
	l, name := n.link()
	d := n.moment()
	n.r.Fault(history.Swallowed, fmt.Sprintf("swallow what is on the %s for %v", name, d))
	l.BlackHole()
	n.wait(d)
	l.Clear()
}

// dropReplies has a link pass what goes to Redis, and nothing that comes back.
func dropReplies(n *nemesis) {
	l, name := n.link()
	d := n.moment()
	n.r.Fault(history.OneWay, fmt.Sprintf("drop the replies on the %s for %v", name, d))
	l.Filter(func(toServer bool, _ []byte) bool { return toServer })
	n.wait(d)
	l.Filter(nil)
	l.CutAll()
}

func slowLink(n *nemesis) {
	l, name := n.link()
	d, late := n.moment(), time.Duration(1+n.dice.IntN(200))*time.Millisecond
	n.r.Fault(history.Slow, fmt.Sprintf("delay the %s by %v for %v", name, late, d))
	l.Latency(late)
	n.wait(d)
	l.Clear()
}

// isolate cuts one proxy off from so many nodes that those left are no majority, or just one.
func isolate(n *nemesis) {
	p, i := n.proxy()
	d := n.moment()
	some := n.dice.Perm(len(p.links))[:len(p.links)/2+n.dice.IntN(2)]
	n.r.Fault(history.Apart, fmt.Sprintf("cut proxy %d off from the nodes %v for %v", i, some, d))
	for _, k := range some {
		p.links[k].Disable()
	}
	n.wait(d)
	for _, k := range some {
		p.links[k].Enable()
	}
}
