package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// harm is one thing that goes wrong; it is over, and mended, when it returns.
type harm func(n *nemesis)

// nemesis hurts links, nodes and proxies, one after the other.
type nemesis struct {
	*environment
	dice *rand.Rand
	stop chan struct{}
	over chan struct{}
}

func (b *environment) loose() *nemesis {
	n := &nemesis{environment: b, dice: b.dice(1), stop: make(chan struct{}), over: make(chan struct{})}
	go n.run()
	return n
}

// mend ends it: afterwards everything runs and reaches each other.
func (n *nemesis) mend() {
	close(n.stop)
	<-n.over
}

func (n *nemesis) run() {
	defer close(n.over)
	for len(n.p.harms) > 0 && n.wait(time.Duration(1+n.dice.Int64N(int64(n.p.pause)))) {
		n.p.harms[n.dice.IntN(len(n.p.harms))](n)
	}
}

// wait passes time; it says whether to go on.
func (n *nemesis) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-n.stop:
		return false
	case <-timer.C:
		return true
	}
}

// link picks the way from a proxy to a node; nil: that proxy does not run.
func (n *nemesis) link() (*world.Link, string) {
	x, i := n.proxies[n.dice.IntN(len(n.proxies))], n.dice.IntN(len(n.nodes))
	e := x.engine()
	if e == nil {
		return nil, ""
	}
	return e.wire(n.environment, i), fmt.Sprintf("the link of %s to node %d", e.name, i)
}

func (n *nemesis) node() (*world.Node, string) {
	i := n.dice.IntN(len(n.nodes))
	return n.nodes[i], fmt.Sprint("node ", i)
}

// moment is for how long something lasts: a blink, or longer than leases.
func (n *nemesis) moment() time.Duration {
	if n.dice.IntN(3) == 0 {
		return n.p.options.Watchdog + time.Duration(n.dice.Int64N(int64(n.p.options.Watchdog)))
	}
	return time.Duration(1 + n.dice.Int64N(int64(2*second)))
}

func dropLink(n *nemesis) {
	if l, name := n.link(); l != nil {
		n.Fault(history.Cut, "drop "+name)
		l.Drop()
	}
}

func (n *nemesis) hurtLink(kind history.Kind, what string, hurt func(l *world.Link)) {
	l, name := n.link()
	if l == nil {
		return
	}
	d := n.moment()
	n.Fault(kind, fmt.Sprintf("%s %s for %v", what, name, d))
	hurt(l)
	n.wait(d)
	l.Heal()
	l.Drop() // what was swallowed does not come any more
}

func cutLink(n *nemesis) { n.hurtLink(history.Cut, "cut", (*world.Link).Cut) }
func swallowLink(n *nemesis) {
	n.hurtLink(history.Swallowed, "swallow what is on", func(l *world.Link) { l.Swallow(world.Both) })
}
func loseReplies(n *nemesis) {
	n.hurtLink(history.OneWay, "swallow the replies on", func(l *world.Link) { l.Swallow(world.Replies) })
}
func slowLink(n *nemesis) {
	late := time.Duration(n.dice.Int64N(int64(300 * ms)))
	n.hurtLink(history.Slow, fmt.Sprintf("delay by %v", late), func(l *world.Link) { l.Delay(late, late/4) })
}

func stopNode(n *nemesis) {
	x, name := n.node()
	d := n.moment()
	n.Fault(history.ServerStopped, fmt.Sprintf("stop %s for %v", name, d))
	x.Stop()
	n.wait(d)
	x.Cont()
}

func stopMajority(n *nemesis) {
	d := time.Duration(n.dice.Int64N(int64(5 * second)))
	some := n.dice.Perm(len(n.nodes))[:len(n.nodes)/2+1]
	n.Fault(history.ServerStopped, fmt.Sprintf("stop the nodes %v for %v", some, d))
	for _, i := range some {
		n.nodes[i].Stop()
	}
	n.wait(d)
	for _, i := range some {
		n.nodes[i].Cont()
	}
}

func restartNode(n *nemesis) {
	x, name := n.node()
	n.Fault(history.ServerEmpty, "restart "+name+", empty")
	x.Restart()
}

// restartOfQuorum has a node forget everything, and leaves it the time until it counts again.
func restartOfQuorum(n *nemesis) {
	restartNode(n)
	n.wait(n.p.quorum.MaxLease * 12 / 10)
}

func flushScripts(n *nemesis) {
	x, name := n.node()
	n.Fault(history.Scripts, "flush the scripts of "+name)
	x.Ask("SCRIPT", "FLUSH")
}

func dropSubscribers(n *nemesis) {
	x, name := n.node()
	n.Fault(history.Cut, "drop the subscribers of "+name)
	x.DropSubscribers()
}

func jumpClock(n *nemesis) {
	x, name := n.node()
	by := time.Duration(n.dice.Int64N(int64(40*second))) - 20*second
	n.Fault(history.ClockSet, fmt.Sprintf("the clock of %s jumps by %v", name, by))
	x.Jump(by)
	n.lengthened += max(0, -by)
}

func setBack(n *nemesis) {
	x, name := n.node()
	by := time.Duration(n.dice.Int64N(int64(5 * second)))
	n.Fault(history.ClockSet, fmt.Sprintf("the clock of %s is set back by %v", name, by))
	x.Jump(-by)
	n.lengthened += by
}

// drift moves a clock by less than what a lease allows for: 1 % and 2 ms.
func drift(n *nemesis) {
	x, name := n.node()
	by := time.Duration(n.dice.Int64N(int64(4*ms))) - 2*ms
	n.Fault(history.ClockSet, fmt.Sprintf("the clock of %s moves by %v", name, by))
	x.Jump(by)
	n.wait(n.p.quorum.MaxLease)
}

// isolate cuts one proxy off from so many nodes that those left are no majority, or just one.
func isolate(n *nemesis) {
	e := n.proxies[n.dice.IntN(len(n.proxies))].engine()
	if e == nil {
		return
	}
	d := n.moment()
	some := n.dice.Perm(len(n.nodes))[:len(n.nodes)/2+n.dice.IntN(2)]
	n.Fault(history.Apart, fmt.Sprintf("cut %s off from the nodes %v for %v", e.name, some, d))
	for _, i := range some {
		e.wire(n.environment, i).Cut()
	}
	n.wait(d)
	for _, i := range some {
		e.wire(n.environment, i).Heal()
	}
}

func killProxy(n *nemesis) {
	x := n.proxies[n.dice.IntN(len(n.proxies))]
	n.Fault(history.ProxyKilled, fmt.Sprint("kill proxy ", x.n))
	x.kill()
	n.wait(time.Duration(1 + n.dice.Int64N(int64(second))))
	x.start()
}
