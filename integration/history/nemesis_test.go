package history

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// harm is one thing that goes wrong; it is over, and mended, when it returns.
type harm func(n *nemesis)

// nemesis hurts proxies, Redis, and the nodes of a quorum.
type nemesis struct {
	*environment
	r        *history.Recorder
	dice     *rand.Rand
	watchdog time.Duration
	stop     chan struct{}
	done     sync.WaitGroup
}

// loose begins: one harm after the other, at most pause apart, until mend.
func (b *environment) loose(r *history.Recorder, dice *rand.Rand, watchdog, pause time.Duration, harms []harm) *nemesis {
	n := &nemesis{environment: b, r: r, dice: dice, watchdog: watchdog, stop: make(chan struct{})}
	if len(harms) > 0 {
		n.done.Go(func() { n.run(pause, harms) })
	}
	return n
}

// mend ends it: afterwards every proxy and Redis runs and reaches each other.
func (n *nemesis) mend() {
	close(n.stop)
	n.done.Wait()
}

func (n *nemesis) run(pause time.Duration, harms []harm) {
	for n.wait(time.Duration(n.dice.Int64N(int64(pause)))) {
		harms[n.dice.IntN(len(harms))](n)
	}
}

// wait passes time; it says whether to go on.
func (n *nemesis) wait(d time.Duration) bool {
	select {
	case <-n.stop:
		return false
	case <-time.After(d):
		return true
	}
}

func (n *nemesis) proxy() (*proxy, int) {
	i := n.dice.IntN(len(n.proxies))
	return n.proxies[i], i
}

// server picks a Redis.
func (n *nemesis) server() *testredis.Server {
	all := n.servers()
	return all[n.dice.IntN(len(all))]
}

// tell sends Redis one command on a connection of its own.
func (n *nemesis) tell(kind history.Kind, words ...any) {
	n.r.Fault(kind, strings.TrimSpace(fmt.Sprintln(words...)))
	c, err := n.dial(n.server().Addr())
	if err != nil {
		return // it is stopped for a moment, at most
	}
	defer c.Close()
	_, _ = redis.DoWithTimeout(c, 5*time.Second, words[0].(string), words[1:]...)
}

// cutReplies cuts a proxy off for a moment: replies on the way are lost.
func cutReplies(n *nemesis) {
	p, i := n.proxy()
	n.r.Fault(history.Cut, fmt.Sprint("cut the wire of proxy ", i))
	p.wire.CutAll()
}

func killClients(n *nemesis)     { n.tell(history.Cut, "CLIENT", "KILL", "TYPE", "normal") }
func killSubscribers(n *nemesis) { n.tell(history.Cut, "CLIENT", "KILL", "TYPE", "pubsub") }
func flushScripts(n *nemesis)    { n.tell(history.Scripts, "SCRIPT", "FLUSH") }
func pauseClients(n *nemesis) {
	n.tell(history.ServerStopped, "CLIENT", "PAUSE", 20+n.dice.IntN(300), []string{"ALL", "WRITE"}[n.dice.IntN(2)])
}

// stopRedis freezes a Redis for less than a lease.
func stopRedis(n *nemesis) {
	s, d := n.server(), time.Duration(20+n.dice.IntN(500))*time.Millisecond
	n.r.Fault(history.ServerStopped, fmt.Sprintf("stop Redis at %s for %v", s.Addr(), d))
	s.Stop()
	n.wait(d)
	s.Cont()
}

// stopProxy freezes a proxy past its leases.
func stopProxy(n *nemesis) {
	p, i := n.proxy()
	d := time.Duration(n.dice.Int64N(int64(2 * n.watchdog)))
	n.r.Fault(history.ProxyStopped, fmt.Sprintf("stop proxy %d for %v", i, d))
	p.signal(syscall.SIGSTOP)
	n.wait(d)
	p.signal(syscall.SIGCONT)
}

// killProxy is kill -9, and a new start a moment later.
func killProxy(n *nemesis) {
	p, i := n.proxy()
	n.r.Fault(history.ProxyKilled, fmt.Sprint("kill -9 proxy ", i))
	p.kill()
	n.wait(time.Duration(n.dice.IntN(300)) * time.Millisecond)
	p.start()
}
