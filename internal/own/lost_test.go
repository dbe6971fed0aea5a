package own

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

// The connection upstream is lost when MULTI is about to be sent: what follows must not run outside of a transaction. A client that is
// not closed for it gets an error until EXEC.
func TestNoTransactionInPart(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	for _, closes := range []bool{true, false} {
		h := &client{closes: closes}
		o := connectionsOf(t, server, h)
		lost, err := o.open()
		if err != nil {
			t.Fatal(err)
		}
		lost.drop()
		cmd, c := command("MULTI")
		if !o.path.run(lost, cmd, c, false) {
			t.Error("MULTI is run elsewhere")
		}
		if closes {
			if !errors.Is(h.failed, dedicated.ErrGone) || len(h.out) > 0 {
				t.Errorf("failed with %v, answered %q", h.failed, h.out)
			}
			continue
		}
		for _, line := range []string{"SET k v", "EXEC"} {
			if cmd, c := command(strings.Fields(line)...); !o.Run(cmd, c, false) {
				t.Errorf("%s is run elsewhere", line)
			}
		}
		why := (&upstream.NotSentError{Cause: dedicated.ErrGone}).Error()
		want := "+OK\r\n-ERR " + why + ": the transaction is discarded, EXEC or DISCARD ends it\r\n" +
			"-EXECABORT Transaction discarded because of: " + why + "\r\n"
		if string(h.out) != want {
			t.Errorf("answered %q, want %q", h.out, want)
		}
		if cmd, c := command("EXEC"); o.Run(cmd, c, false) {
			t.Error("the transaction has not ended")
		}
	}
}

// command is a command as a client sends it, and what is known of it.
func command(words ...string) (redcon.Command, *commandtable.Command) {
	cmd := redcon.Command{Raw: resp.AppendCommand(nil, words...)}
	for _, w := range words {
		cmd.Args = append(cmd.Args, []byte(w))
	}
	return cmd, commandtable.New(nil, nil, nil, nil).Lookup(cmd.Args[0])
}

// client is a client of whom only the transaction matters. It is in one goroutine.
type client struct {
	Host   // nil: the rest is not asked
	closes bool
	out    []byte
	failed error
	to     *downstream.Conn // out is written there; nil: nowhere

	here, there net.Conn // its connection: its own end, and this proxy's
}

func (h *client) Identity() upstream.Identity        { return upstream.Identity{Proto: 2} }
func (h *client) Name() string                       { return "" }
func (h *client) Refused() error                     { return nil }
func (h *client) Silent() bool                       { return false }
func (h *client) WritesPaused() bool                 { return false }
func (h *client) Forward()                           {}
func (h *client) Closes(error) bool                  { return h.closes }
func (h *client) LearnAgain()                        {}
func (h *client) Fail(err error)                     { h.failed = err }
func (h *client) Answer(add func(out []byte) []byte) { h.out = add(h.out) }

func (h *client) WriteReplies() {
	if h.to != nil {
		_, _ = h.to.Write(h.out)
		h.out = nil
	}
}

// connectionsOf are the connections of h, whose own has nothing to read, to a Redis.
func connectionsOf(t *testing.T, server *testredis.Server, h *client) *Connections {
	t.Helper()
	target, err := upstream.ParseTarget(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	node := upstream.NewNode(target, upstream.NodeOptions{})
	t.Cleanup(node.Close)
	h.here, h.there = net.Pipe()
	t.Cleanup(func() { h.here.Close(); h.there.Close() })
	gate := downstream.NewGate(t.Context(), downstream.Options{Limits: func() resp.Limits { return resp.DefaultLimits }, Admit: func(*downstream.Conn) downstream.Client { return ordinary{} }})
	l, _ := gate.Guard(&oneClient{conn: h.there}, downstream.Entry{})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return New(&Common{Common: &backend.Common{Context: t.Context()}, Backend: backend.NewSingle(node)}, h, conn.(*downstream.Conn), 1, nil)
}

// ordinary is a client that has not subscribed.
type ordinary struct{ downstream.Client } // nil: the rest is not asked

func (ordinary) Subscribed() bool { return false }

// oneClient is a listener to which one client comes.
type oneClient struct {
	net.Listener
	conn net.Conn
}

func (l *oneClient) Accept() (net.Conn, error) { return l.conn, nil }
func (l *oneClient) Addr() net.Addr            { return l.conn.LocalAddr() }

// The connection is lost when a command for it has been taken and not written: the error in place of its reply comes behind the replies
// to what was answered before it past the connection.
func TestLostBehindOtherReplies(t *testing.T) {
	t.Parallel()
	h := &client{}
	o := connectionsOf(t, testredis.Start(t), h)
	p, err := o.open()
	if err != nil {
		t.Fatal(err)
	}
	h.to = o.client
	h.out = append(h.out, "+first\r\n"...) // what was asked before, on a shared connection
	go func() {
		cmd, c := command("WATCH", "k")
		o.send(p, cmd, c)
		p.Ended(errors.New("broken"))
		h.WriteReplies()
		h.there.Close()
	}()
	got, err := io.ReadAll(h.here)
	if want := "+first\r\n-ERR "; err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("the client got %q, %v", got, err)
	}
}
