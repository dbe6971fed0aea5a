package session

import (
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func (p *proxy) mayBlock(name string) bool {
	c, _ := p.srv.facts.table.Load().find([][]byte{[]byte(name)})
	return c != nil && c.Conn == commandtable.ConnBlock
}

// A command of a module that has not been answered for long gets connections of its own from then on; others that are as slow do not.
// No module is at hand: GET is said to be one's, and the way to Redis is made slow.
func TestModuleCommandsThatBlockAreFound(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	slow := testredis.NewProxy(t, server.Addr())
	p := startProxy(t, "redis://"+slow.Addr(), func(o *Options) { o.Blocking = []string{"strlen"} })
	eventually(t, "Redis has told of its commands", func() bool { return p.mayBlock("blpop") })
	if !p.mayBlock("strlen") || p.mayBlock("get") {
		t.Error("what --blocking-commands names, and nothing else, may wait from the start")
	}
	of := func(name string) *commandtable.Command {
		c, _ := p.srv.facts.table.Load().find([][]byte{[]byte(name)})
		return c
	}
	of("get").Module = true // nobody else looks yet
	w, other := dialWire(t, p.addr), dialWire(t, p.addr)
	w.expect("$-1\r\n", "GET", "k")
	other.expect(":0\r\n", "EXISTS", "k")
	slow.Latency(patience) // until it is found, however late it is looked for
	other.send("EXISTS", "k")
	w.send("GET", "k")
	eventually(t, "GET is found", func() bool { return slices.Contains(p.srv.facts.blocking.names(), "get") })
	slow.Clear()
	w.want("$-1\r\n")
	other.want(":0\r\n")
	eventually(t, "GET has a connection to itself", func() bool { return p.mayBlock("get") })
	if p.mayBlock("exists") {
		t.Error("a slow command of Redis' own was taken for one that blocks")
	}
	w.expect("$-1\r\n", "GET", "k")
}
