package session

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// The connection upstream is lost when MULTI is about to be sent: what follows must not run outside of a transaction.
func TestNoTransactionInPart(t *testing.T) {
	p := startProxy(t, testredis.Start(t).URL(), nil)
	here, there := net.Pipe()
	defer here.Close()
	g := newGuard(there, p.srv)
	s := newSession(p.srv, g, 1)
	g.sess, s.batch = s, &batch{guard: g}
	said := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(here) // until the end of the connection
		said <- string(all)
	}()
	raw := resp.AppendCommand(nil, "MULTI")
	cmd := redcon.Command{Raw: raw, Args: [][]byte{[]byte("MULTI")}}
	c, _ := s.srv.table.Load().find(cmd.Args)
	s.commandPinned(&pinned{s: s, released: true}, cmd, c, nil)
	if !g.over.Load() {
		t.Error("the client goes on without its transaction")
	}
	there.Close()
	if got := <-said; !strings.HasPrefix(got, "-ERR upstream unavailable") {
		t.Errorf("said %q", got)
	}
}
