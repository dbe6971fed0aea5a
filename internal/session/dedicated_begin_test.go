package session

import (
	"io"
	"net"
	"testing"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// oneClient is a listener to which one client comes.
type oneClient struct {
	net.Listener
	conn net.Conn
}

func (l *oneClient) Accept() (net.Conn, error) { return l.conn, nil }
func (l *oneClient) Addr() net.Addr            { return l.conn.LocalAddr() }
func (l *oneClient) Close() error              { return nil }

// The connection upstream is lost when MULTI is about to be sent: what follows must not run outside of a transaction.
func TestNoTransactionInPart(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testredis.Start(t).URL(), nil)
	here, there := net.Pipe()
	defer here.Close()
	l, _ := p.srv.gate.Guard(&oneClient{conn: there}, downstream.Entry{})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	g := conn.(*downstream.Conn)
	s := g.Client().(*Session)
	defer s.srv.clients.running.Done()
	defer s.End()
	s.batch = &batch{Batch: backend.Batch{Guard: g}}
	said := make(chan string, 1)
	go readToTheEnd(here, said)
	raw := resp.AppendCommand(nil, "MULTI")
	cmd := redcon.Command{Raw: raw, Args: [][]byte{[]byte("MULTI")}}
	c, _ := s.srv.facts.table.Load().find(cmd.Args)
	lost, err := s.openDedicated()
	if err != nil {
		t.Fatal(err)
	}
	lost.drop()
	s.runDedicated(lost, cmd, c, nil)
	if !g.Over() {
		t.Error("the client goes on without its transaction")
	}
	there.Close()
	if got := <-said; got != "" {
		t.Errorf("said %q", got)
	}
}

// readToTheEnd tells what was said until the end of the connection.
func readToTheEnd(conn net.Conn, said chan<- string) {
	all, _ := io.ReadAll(conn)
	said <- string(all)
}
