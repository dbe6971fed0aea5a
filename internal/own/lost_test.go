package own

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
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
	c := commandtable.New(nil, nil, nil, []*commandtable.Command{{Name: "get"}, {Name: "set"}}).Find(cmd.Args)
	return cmd, c
}

// client is a client of whom only the transaction matters. It is in one goroutine.
type client struct {
	Host   // nil: the rest is not asked
	closes bool
	resp3  bool
	run    string // the replies to what waits to be forwarded
	out    []byte
	failed error
	to     *downstream.Conn // out is written there; nil: nowhere
	locks  *lock.Client

	here, there net.Conn // its connection: its own end, and this proxy's
}

func (h *client) Name() string                       { return "" }
func (h *client) Refused() error                     { return nil }
func (h *client) Silent() bool                       { return false }
func (h *client) WritesPaused() bool                 { return false }
func (h *client) Closes(error) bool                  { return h.closes }
func (h *client) LearnAgain()                        {}
func (h *client) Fail(err error)                     { h.failed = err }
func (h *client) Answer(add func(out []byte) []byte) { h.out = add(h.out) }

func (h *client) Lockless() bool      { return h.closes }
func (h *client) Locks() *lock.Client { return h.locks }
func (h *client) Trouble(error)       {}

func (h *client) Timed(*commandtable.Command, string, time.Duration) {}

func (h *client) Routes() *backend.Routes {
	return &backend.Routes{Table: commandtable.New(nil, nil, nil, nil)}
}

func (h *client) IdentityNow() upstream.Identity { return h.Identity() }
func (h *client) TakesPushes() bool              { return h.Identity().Proto == 3 }

func (h *client) Identity() upstream.Identity {
	if h.resp3 {
		return upstream.Identity{Proto: 3}
	}
	return upstream.Identity{Proto: 2}
}

func (h *client) Forward() {
	h.out = append(h.out, h.run...)
	h.run = ""
}

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
	node := upstream.NewNode(target, upstream.NodeOptions{DialTimeout: 10 * time.Second})
	t.Cleanup(node.Close)
	h.here, h.there = net.Pipe()
	t.Cleanup(func() { h.here.Close(); h.there.Close() })
	gate := downstream.NewGate(t.Context(), downstream.Options{Logger: slog.New(slog.DiscardHandler), Limits: func() resp.Limits { return resp.DefaultLimits }, Admit: func(*downstream.Conn) downstream.Client { return ordinary{} }})
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

// What a client that tracks keys has read past its own connection, while that was made again, Redis does not track: it is told to forget
// that, too.
func TestForgetsWhatItReadMeanwhile(t *testing.T) {
	t.Parallel()
	const forget = ">2\r\n$10\r\ninvalidate\r\n_\r\n"
	for _, idle := range []bool{false, true} {
		h := &client{resp3: true}
		o := connectionsOf(t, testredis.Start(t), h)
		h.to = o.client
		told := make(chan struct{})
		go func() {
			defer h.there.Close()
			tracking, c := command("CLIENT", "TRACKING", "ON")
			o.Run(tracking, c, false)
			o.conn.Settled()
			o.conn.Ended(errors.New("broken"))
			<-told
			h.run = "$1\r\nv\r\n" // it was on the way
			if idle {
				h.Forward()
				h.WriteReplies()
				o.Attend()
			}
			get, c := command("GET", "k")
			o.Run(get, c, false)
			o.conn.Settled()
		}()
		h.here.SetReadDeadline(time.Now().Add(time.Minute))
		const before = "+OK\r\n" + forget + forget // the connection is lost, and is made again
		got := make([]byte, len(before))
		_, _ = io.ReadFull(h.here, got) // the comparison tells
		close(told)
		rest, err := io.ReadAll(h.here)
		if got = append(got, rest...); err != nil || string(got) != before+"$1\r\nv\r\n"+forget+"_\r\n" {
			t.Errorf("idle %t: the client got %q, %v", idle, got, err)
		}
		o.End()
	}
}

// What Redis sends a subscriber behind its answer to HELLO comes behind the client's own, since it is in the other protocol.
func TestMessagesComeBehindHello(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	h := &client{resp3: true}
	o := connectionsOf(t, server, h)
	h.to = o.client
	const hello, message = "*0\r\n", "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n"
	go func() {
		defer h.there.Close()
		subscribe, c := command("SUBSCRIBE", "c")
		o.Run(subscribe, c, false)
		p := o.conn
		p.Settled()
		server.Stop() // so that both come at once
		var received sync.WaitGroup
		received.Go(func() {
			for o.View.Pending.Load() == 0 {
				runtime.Gosched()
			}
			p.Received([]byte(hello + message))
		})
		if err := o.Hello(upstream.Identity{Proto: 2}); err != nil {
			t.Error(err)
		}
		h.out = append(h.out, hello...)
		h.WriteReplies()
		o.Greeted()
		received.Wait()
		o.End()
	}()
	got, err := io.ReadAll(h.here)
	if !strings.HasSuffix(string(got), "\r\n:1\r\n"+hello+message) {
		t.Errorf("the client got %q, %v", got, err)
	}
}

// A connection that has carried a command which Redis was said not to have serves no other client, unless Redis does not know the command
// either.
func TestConnectionOfAnUnlistedCommand(t *testing.T) {
	t.Parallel()
	for line, idle := range map[string]int{"NONSENSE a": 1, "SELECT 5": 0} {
		h := &client{}
		o := connectionsOf(t, testredis.Start(t), h)
		go func() { _, _ = io.Copy(io.Discard, h.here) }()
		cmd, _ := command(strings.Fields(line)...)
		if !o.Run(cmd, commandtable.Unlisted, false) {
			t.Fatalf("%s would be forwarded", line)
		}
		o.conn.Settled()
		o.Attend()
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
