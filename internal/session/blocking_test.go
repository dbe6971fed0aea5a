package session

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

func (p *proxy) mayBlock(name string) bool {
	c, _ := p.srv.facts.table.Load().findRow([][]byte{[]byte(name)})
	return c != nil && c.Conn == commandtable.ConnBlock
}

// What --blocking-commands names may wait, and nothing else that Redis does not flag so.
func TestBlockingCommands(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.Blocking = []string{"strlen"} })
	if !p.mayBlock("strlen") || !p.mayBlock("blpop") || p.mayBlock("get") {
		t.Error("what --blocking-commands names, and nothing else, may wait from the start")
	}
	dialWire(t, p.addr).expect(":0\r\n", "STRLEN", "k")
	if used, idle := p.srv.o.Node.DedicatedCount(); used+idle != 1 {
		t.Errorf("%d connections that serve one client", used+idle)
	}
}
