package session

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

func (p *proxy) mayBlock(name string) bool {
	c, _ := p.srv.facts.table.Load().find([][]byte{[]byte(name)})
	return c != nil && c.Conn == commandtable.ConnBlock
}

// of is what the table says of a command.
func (p *proxy) of(name string) *commandtable.Command {
	return p.srv.facts.table.Load().Lookup([]byte(name))
}

// A command of a module that is not answered while others are gets connections of its own from then on. No module is at hand: BLPOP is said to be
// one's that does not say that it may wait.
func TestModuleCommandsThatBlockAreFound(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := startProxy(t, server.URL(), func(o *Options) { o.Blocking = []string{"strlen"} })
	if !p.mayBlock("strlen") || p.mayBlock("get") {
		t.Error("what --blocking-commands names, and nothing else, may wait from the start")
	}
	c := p.of("blpop")
	c.Conn, c.Module = commandtable.ConnNone, true // nobody else looks yet
	w, other := dialWire(t, p.addr), dialWire(t, p.addr)
	other.expect(":0\r\n", "EXISTS", "k")
	w.send("BLPOP", "k", "0")
	eventually(t, "BLPOP waits", func() bool {
		return strings.Contains(text(server.Do(t, "INFO", "clients")), "\r\nblocked_clients:1\r\n")
	})
	other.send("EXISTS", "k")
	eventually(t, "BLPOP is found", func() bool { return slices.Contains(p.srv.facts.blocking.names(), "blpop") })
	server.Do(t, "RPUSH", "k", "v")
	w.want("*2\r\n$1\r\nk\r\n$1\r\nv\r\n")
	other.want(":0\r\n")
	if slices.Contains(p.srv.facts.blocking.names(), "exists") {
		t.Error("a command of Redis' own that waited behind it was taken for one that blocks")
	}
	eventually(t, "the table has it", func() bool { return p.mayBlock("blpop") })
}

// While Redis answers nobody, or holds up all writes, no command is taken for one that blocks; nor while its client reads a long reply slowly.
func TestModuleCommandsOfASlowRedisAreNotBlamed(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := startProxy(t, server.URL(), nil)
	p.of("get").Module, p.of("set").Module = true, true // nobody else looks yet
	w, slow := dialWire(t, p.addr), slowWire(t, p.addr)
	w.expect("+OK\r\n", "SET", "k", "v")
	server.Do(t, "SET", "long", strings.Repeat("x", 40<<20)) // more than all kernels' buffers on the way hold
	w.do("GET", "long")                                      // from now on it goes over connections of their own
	slow.send("GET", "long")
	slow.some(1 << 20)
	server.Stop()
	w.send("GET", "k")
	time.Sleep(3 * stuckAfter)
	server.Cont()
	w.want("$1\r\nv\r\n")
	const paused = 4 * stuckAfter
	server.Do(t, "CLIENT", "PAUSE", paused.Milliseconds(), "WRITE")
	w.expect("+OK\r\n", "SET", "k", "v")
	w.expect("$1\r\nv\r\n", "GET", "k")
	if names := p.srv.facts.blocking.names(); len(names) > 0 {
		t.Errorf("taken for commands that block: %q", names)
	}
}
