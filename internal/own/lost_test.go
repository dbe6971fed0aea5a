package own

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

// The connection upstream is lost when MULTI is about to be sent: what follows must not run outside of a transaction.
// A client that is not closed for it gets an error until EXEC.
func TestNoTransactionInPart(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	for _, closes := range []bool{true, false} {
		h := connectionsOf(t, server)
		if !closes {
			h.client.HasLocks(holder{})
		}
		got := h.reads()
		lost, err := h.open()
		if err != nil {
			t.Fatal(err)
		}
		lost.drop()
		cmd, c := command("MULTI")
		if !h.path.run(lost, cmd, c, false) {
			t.Error("MULTI is run elsewhere")
		}
		if closes {
			_, why := h.client.End.Reason()
			if answered := h.ends(got); !strings.Contains(why, dedicated.ErrGone.Error()) || answered != "" {
				t.Errorf("closed with %q, answered %q", why, answered)
			}
			continue
		}
		for _, line := range []string{"SET k v", "EXEC"} {
			if cmd, c := command(strings.Fields(line)...); !h.Run(cmd, nil, c, false) {
				t.Errorf("%s is run elsewhere", line)
			}
		}
		if cmd, c := command("EXEC"); h.Run(cmd, nil, c, false) {
			t.Error("the transaction has not ended")
		}
		why := (&upstream.NotSentError{Cause: dedicated.ErrGone}).Error()
		want := "+OK\r\n-ERR " + why + ": the transaction is discarded, EXEC or DISCARD ends it\r\n" +
			"-EXECABORT Transaction discarded because of: " + why + "\r\n"
		if answered := h.ends(got); answered != want {
			t.Errorf("answered %q, want %q", answered, want)
		}
	}
}

// holder has a lock.
type holder struct{ client.LockHolder }

func (holder) Held() int { return 1 }

// What becomes of a command by what was lost before.
func TestAfterALoss(t *testing.T) {
	t.Parallel()
	const exec, discard, multi, unwatch, watch, none = commandtable.ConnExec, commandtable.ConnDiscard, commandtable.ConnMulti,
		commandtable.ConnUnwatch, commandtable.ConnWatch, commandtable.ConnNone
	for _, c := range []struct {
		lost loss
		kind commandtable.ConnKind
		want afterwards
	}{
		{lostTransaction, exec, aborts}, {lostTransaction, discard, discards},
		{lostTransaction, multi, nests}, {lostTransaction, none, isLost}, {lostTransaction, unwatch, isLost}, {lostTransaction, watch, isLost},
		{lostWatch, exec, runs}, {lostWatch, discard, runs}, {lostWatch, unwatch, runsFree}, {lostWatch, multi, begins}, {lostWatch, none, runs},
		{lostWatch, watch, runs}, {lostNothing, exec, runs}, {lostNothing, multi, runs}, {lostNothing, unwatch, runs},
	} {
		if got := c.lost.after(c.kind); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// A lost transaction outweighs watched keys that were lost before or after it: its end is the end of both. The first
// cause is told.
func TestLosses(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	for _, order := range [][2]loss{{lostWatch, lostTransaction}, {lostTransaction, lostWatch}, {lostTransaction, lostTransaction}} {
		var o Connections
		o.lose(order[0], first)
		o.lose(order[1], second)
		if o.lost.loss != lostTransaction || o.lost.cause != first || o.View.Multi.Load() != 1 {
			t.Errorf("%v: %+v, %d queued", order, o.lost, o.View.Multi.Load()-1)
		}
		if o.lost.clear(&o); o.any() || o.View.Multi.Load() != 0 {
			t.Errorf("%v: %+v is left", order, o.lost)
		}
	}
	if lossOf(&dedicated.Lost{Multi: true, Watch: true}) != lostTransaction || lossOf(&dedicated.Lost{Watch: true}) != lostWatch || lossOf(&dedicated.Lost{}) != lostNothing {
		t.Error("a connection's loss is another")
	}
}

// command is a command as a client sends it, and what is known of it.
func command(words ...string) (redcon.Command, *commandtable.Command) {
	cmd := redcon.Command{Raw: resp.AppendCommand(nil, words...)}
	for _, w := range words {
		cmd.Args = append(cmd.Args, []byte(w))
	}
	c := commandtable.New(nil, nil, nil, []*commandtable.Command{{Name: "get"}, {Name: "set"}}).Find(cmd.Args)
	return cmd, c
}

// tested is a client and its connections. It is in one goroutine.
type tested struct {
	*Connections
	batch       backend.Batch
	here, there net.Conn // its connection: its own end, and this proxy's
}

// reads reads what the client gets until its connection ends.
func (h *tested) reads() <-chan string {
	got := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(h.here)
		got <- string(all)
	}()
	return got
}

// ends ends the client, and returns what it got.
func (h *tested) ends(got <-chan string) string {
	h.client.Flush()
	h.there.Close()
	return <-got
}

// connectionsOf is a client whose connection has nothing to read, and which has connections of its own to a Redis.
func connectionsOf(t *testing.T, server *testredis.Server) *tested {
	t.Helper()
	where, err := upstream.ParseURL(server.URL())
	target := where.Target()
	if err != nil {
		t.Fatal(err)
	}
	node := upstream.NewNode(target, upstream.NodeOptions{DialTimeout: 10 * time.Second})
	t.Cleanup(node.Close)
	h := &tested{}
	h.here, h.there = net.Pipe()
	t.Cleanup(func() { h.here.Close(); h.there.Close() })
	gate := downstream.NewGate(t.Context(), downstream.GateOptions{Logger: slog.New(slog.DiscardHandler), Admit: func(*downstream.Conn) downstream.Client { return ordinary{} }})
	l, _ := gate.Guard(&oneClient{conn: h.there}, downstream.Entry{})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	process := &client.Process{Context: t.Context(), Relearn: make(chan struct{}, 1)}
	c := client.New(process, conn.(*downstream.Conn), 1, upstream.Identity{Proto: 2})
	common := &Common{Common: &backend.Common{Process: process}, Backend: backend.NewSingle(node)}
	common.Routes.Store(&backend.Routes{Table: commandtable.New(nil, nil, nil, nil)})
	forwarder := backend.NewForwarder(common.Backend, common.Common, c)
	t.Cleanup(forwarder.Leave)
	forwarder.Begin(&h.batch)
	h.Connections = New(common, c, forwarder)
	return h
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

// The connection is lost when a command for it has been taken and not written: the error in place of its reply comes
// behind the replies to what was answered before it past the connection.
func TestLostBehindOtherReplies(t *testing.T) {
	t.Parallel()
	h := connectionsOf(t, testredis.Start(t))
	h.client.HasLocks(holder{})
	p, err := h.open()
	if err != nil {
		t.Fatal(err)
	}
	h.client.Give([]byte("+first\r\n")) // what was asked before, on a shared connection
	go func() {
		cmd, c := command("WATCH", "k")
		h.send(p, cmd, c)
		p.Lose(errors.New("broken"))
		h.client.Flush()
		h.there.Close()
	}()
	got, err := io.ReadAll(h.here)
	if want := "+first\r\n-ERR "; err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("the client got %q, %v", got, err)
	}
}

// A connection that has carried a command which Redis was said not to have serves no other client, unless Redis does
// not know the command either.
func TestConnectionOfAnUnlistedCommand(t *testing.T) {
	t.Parallel()
	for line, idle := range map[string]int{"NONSENSE a": 1, "SELECT 5": 0} {
		o := connectionsOf(t, testredis.Start(t))
		go func() { _, _ = io.Copy(io.Discard, o.here) }()
		cmd, _ := command(strings.Fields(line)...)
		if !o.Run(cmd, nil, commandtable.Unlisted, false) {
			t.Fatalf("%s would be forwarded", line)
		}
		o.Settle()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			used, waiting := o.Backend.Node().DedicatedCount()
			if used == 0 && waiting == idle {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d connections are in use, %d wait for the next client", line, used, waiting)
			}
		}
	}
}
