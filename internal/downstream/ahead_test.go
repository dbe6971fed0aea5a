package downstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/socket"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const patience = time.Minute

// echoes is a server whose replies are the commands. It reads ahead of its clients.
type echoes struct {
	anybody
	t     *testing.T
	gate  *Gate
	guard net.Listener
	stop  context.CancelFunc
	all   sync.WaitGroup
	mu    sync.Mutex // guards conns
	conns []*Conn

	unauthenticated atomic.Bool // so are those that come from now on
}

func startEchoes(t *testing.T, network string, e Entry, o GateOptions) *echoes {
	t.Helper()
	s := &echoes{t: t}
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	o.Admit, o.Logger = s.admit, slog.New(slog.DiscardHandler)
	s.gate = NewGate(ctx, o)
	s.guard, _ = s.gate.Guard(ln, e)
	s.all.Go(s.accept)
	s.all.Go(func() { ReadAhead(ctx, s.clients) })
	t.Cleanup(s.end)
	return s
}

// end cuts off the clients, and checks that nothing is left of them.
func (s *echoes) end() {
	s.guard.Close()
	for _, c := range s.clients(nil) {
		c.End.Cut(Left, "the test is over")
	}
	s.stop()
	s.all.Wait()
	if n := s.kept(); n != 0 {
		s.t.Errorf("%d bytes are left in the budget", n)
	}
	for _, c := range s.conns {
		if c.Reader.ahead.done != nil || !c.Reader.ahead.kept.empty() {
			s.t.Error("something is left of a client that was read ahead")
		}
	}
}

func (s *echoes) admit(c *Conn) Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	c.Reader.SetUnauthenticated(s.unauthenticated.Load())
	return s
}

func (s *echoes) clients(to []*Conn) []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(to, s.conns...)
}

// kept is how many bytes of commands are counted for all clients.
func (s *echoes) kept() int { return s.gate.budgets.queries.total() + s.gate.budgets.ahead.total() }

func (b *budget) total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// client is the server's side of the n-th client.
func (s *echoes) client(n int) *Conn {
	s.t.Helper()
	eventually(s.t, "the client is there", func() bool { return len(s.clients(nil)) > n })
	return s.clients(nil)[n]
}

func (s *echoes) accept() {
	for {
		conn, err := s.guard.Accept()
		if err != nil {
			return
		}
		s.all.Go(func() { s.serve(conn.(*Conn)) })
	}
}

func (s *echoes) serve(c *Conn) {
	for from := (&all{Conn: c}); ; {
		commands, err := from.next()
		if err != nil {
			c.Finish()
			c.Close()
			c.CloseAccounts()
			c.Place.Leave()
			return
		}
		c.Reader.CommandCame()
		c.Write(commands)
	}
}

func (s *echoes) dial(as *tls.Config) net.Conn {
	s.t.Helper()
	conn, err := net.Dial(s.guard.Addr().Network(), s.guard.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	if as != nil {
		conn = tls.Client(conn, as)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// commands are n different ones of 1 KB.
func commands(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		b.Write(resp.AppendCommand(nil, "X", fmt.Sprintf("%01000d", i)))
	}
	return b.Bytes()
}

// writeAll writes without reading. However slow the machine is, the other side has time for each piece.
func writeAll(t *testing.T, conn net.Conn, b []byte) {
	t.Helper()
	for len(b) > 0 {
		conn.SetWriteDeadline(time.Now().Add(patience))
		n, err := conn.Write(b[:min(len(b), nextPiece)])
		if b = b[n:]; err != nil {
			t.Errorf("all was taken but for %d bytes: %v", len(b), err)
			return
		}
	}
}

// wantAll reads what is to come, with time for each piece.
func wantAll(t *testing.T, conn net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, nextPiece)
	for rest := want; len(rest) > 0; {
		conn.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.Read(got[:min(len(got), len(rest))])
		if !bytes.Equal(got[:n], rest[:n]) || err != nil {
			t.Fatalf("of %d bytes %d came back, and then something else: %v", len(want), len(want)-len(rest), err)
		}
		rest = rest[n:]
	}
}

func (c *Conn) readsAhead() bool {
	c.Reader.mu.Lock()
	defer c.Reader.mu.Unlock()
	return c.Reader.ahead.done != nil
}

// A client may write many megabytes before it reads any reply, whatever is put around its socket.
func TestClientIsReadAhead(t *testing.T) {
	t.Parallel()
	authority := testredis.NewAuthority(t)
	pair, err := tls.LoadX509KeyPair(authority.Issue("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	server, client := &tls.Config{Certificates: []tls.Certificate{pair}}, authority.Client("client")
	client.ServerName = "localhost"
	many := commands(32 << 10) // more than all sockets on the way can hold
	for name, c := range map[string]struct {
		network, header string
		entry           Entry
		as              *tls.Config
	}{
		"tcp": {network: "tcp"}, "unix": {network: "unix"},
		"PROXY header": {network: "tcp", header: "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", entry: Entry{ProxyHeader: true}},
		"TLS":          {network: "tcp", entry: Entry{TLS: server}, as: client},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startEchoes(t, c.network, c.entry, GateOptions{MaxQueryMemory: 256 << 20})
			conn := s.dial(c.as)
			writeAll(t, conn, []byte(c.header)) // for which a server waits no longer than entryTime
			writeAll(t, conn, many)
			if s.kept() == 0 {
				t.Error("what is read ahead does not count")
			}
			wantAll(t, conn, many)
			eventually(t, "all is given back", func() bool { return s.kept() == 0 })
			writeAll(t, conn, commands(1)) // read as ever
			wantAll(t, conn, commands(1))
		})
	}
}

// A client that sends more than may be kept is not read further. It goes on once it reads, and others never notice.
func TestReadingAheadIsBounded(t *testing.T) {
	t.Parallel()
	const bound = 8 << 20
	s := startEchoes(t, "tcp", Entry{}, GateOptions{MaxQueryMemory: bound})
	conn, other := s.dial(nil), s.dial(nil)
	many := commands(64 << 10)
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(many)
		wrote <- err
	}()
	used := s.kept
	c := s.client(0)
	eventually(t, "as much as may be is kept", func() bool { return used() > bound/2-2*nextPiece && !c.readsAhead() })
	if used() > bound/2 {
		t.Errorf("%d bytes are kept", used())
	}
	begun := resp.AppendCommand(nil, "X", strings.Repeat("x", bound/4))
	for range 3 {
		writeAll(t, other, begun[:len(begun)-1])
		eventually(t, "half a command of another client", func() bool { return used() > bound/2 })
		writeAll(t, other, begun[len(begun)-1:])
		wantAll(t, other, begun)
	}
	select {
	case err := <-wrote:
		t.Errorf("all of it was taken, %v", err)
	default:
	}
	wantAll(t, conn, many)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	eventually(t, "all is given back", func() bool { return used() == 0 })
}

// A client that has yet to authenticate may not make this process keep much.
func TestClientsWithoutPasswordAreNotReadAhead(t *testing.T) {
	t.Parallel()
	s := startEchoes(t, "tcp", Entry{}, GateOptions{})
	s.unauthenticated.Store(true)
	conn := s.dial(nil)
	many := commands(32 << 10)
	conn.SetWriteDeadline(time.Now().Add(20 * stalledAfter))
	if n, err := conn.Write(many); err == nil || s.client(0).readsAhead() {
		t.Errorf("%d bytes were taken", n)
	}
}

// However a client ends that is read ahead, nothing is left of it.
func TestEndOfClientsThatAreReadAhead(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(net.Conn, *Conn){
		"the client closes": func(conn net.Conn, _ *Conn) { conn.Close() },
		"it is reset":       func(conn net.Conn, _ *Conn) { conn.(*net.TCPConn).SetLinger(0); conn.Close() },
		"it is cut":         func(_ net.Conn, c *Conn) { c.End.Cut(Left, "CLIENT KILL") },
		"it is dropped":     func(_ net.Conn, c *Conn) { c.dropFor("output buffer limit") },
		"it is idle": func(_ net.Conn, c *Conn) {
			c.Reader.gate.SetBounds(Bounds{IdleTimeout: 5 * stalledAfter})
			c.BoundsChanged()
		},
		"it holds too much": func(_ net.Conn, c *Conn) {
			c.Reader.gate.SetBounds(Bounds{NormalOutput: OutputLimit{Hard: 1}})
			c.BoundsChanged()
		},
		"its half": func(conn net.Conn, c *Conn) {
			conn.(*net.TCPConn).CloseWrite()
			eventually(t, "the end of stream is read", func() bool { return !c.readsAhead() })
			io.Copy(io.Discard, conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startEchoes(t, "tcp", Entry{}, GateOptions{MaxQueryMemory: 256 << 20})
			conn := s.dial(nil)
			writeAll(t, conn, commands(32<<10))
			c := s.client(0)
			eventually(t, "it is read ahead", c.readsAhead)
			end(conn, c)
			eventually(t, "it has its end", c.End.Over)
			eventually(t, "all is given back", func() bool { return s.kept() == 0 && s.gate.Places() == 0 })
		})
	}
}

// Whoever wants to read while a write of somebody else's waits gets what came so far, and then reads itself: it can be
// woken.
func TestReaderTakesOver(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer there.Close()
	c := newTestConn(t, here)
	pushed := make(chan error)
	go func() {
		_, err := c.Write(make([]byte, 1000)) // which nobody reads
		pushed <- err
	}()
	ahead := func() bool { c.Reader.startAhead(time.Now()); return c.readsAhead() }
	eventually(t, "it is read ahead", ahead)
	first, second := commands(100), commands(10)
	writeAll(t, there, first)
	c.Reader.Wake() // not the goroutine that reads ahead
	writeAll(t, there, first[:5])
	if !c.readsAhead() {
		t.Error("a Wake ended it")
	}
	got, from := make([]byte, len(first)+len(second)), &all{Conn: c}
	if _, err := io.ReadFull(from, got[:len(first)]); err != nil || !bytes.Equal(got[:len(first)], first) {
		t.Fatalf("what was read ahead: %v", err)
	}
	go writeAll(t, there, append(first[5:len(second):len(second)], second...))
	if _, err := io.ReadFull(from, got[:2*len(second)]); err != nil || !bytes.Equal(got[:2*len(second)], append(first[:len(second):len(second)], second...)) {
		t.Fatalf("what came then: %v", err)
	}
	eventually(t, "it is read ahead again", ahead)
	stop := c.Reader.Watch()
	eventually(t, "a watch takes over", func() bool { return !c.readsAhead() })
	writeAll(t, there, second)
	stop()
	if _, err := io.ReadFull(from, got[:len(second)]); err != nil || !bytes.Equal(got[:len(second)], second) {
		t.Fatalf("what came during the watch: %v", err)
	}
	c.dropFor("the test is over")
	if err := <-pushed; !errors.Is(err, errOver) && err == nil {
		t.Error("the write succeeded")
	}
	if n, err := c.Read(got); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
	c.CloseAccounts()
}

// When others need the room, the client that has the most is dropped for what it has sent ahead, and only that one.
func TestReadingAheadDropsTheLargest(t *testing.T) {
	t.Parallel()
	const bound = 32 << 20
	s := startEchoes(t, "tcp", Entry{}, GateOptions{MaxQueryMemory: bound})
	go s.dial(nil).Write(commands(64 << 10)) // reads nothing
	hog := s.client(0)
	eventually(t, "as much as may be is kept", func() bool { return s.kept() > bound/2-2*nextPiece && !hog.readsAhead() })
	other := s.dial(nil)
	many := commands(20 << 10)
	writeAll(t, other, many)
	wantAll(t, other, many)
	eventually(t, "the client with the most is dropped", hog.End.Over)
	if s.client(1).End.Over() {
		t.Error("the other client was dropped, too")
	}
}

// A client that goes on sending is not idle, though it does not read.
func TestSendingAheadIsNotIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		c := newTestConn(t, here)
		c.Reader.gate.SetBounds(Bounds{IdleTimeout: 10 * time.Second})
		wrote := make(chan error)
		go func() {
			_, err := c.Write(make([]byte, 1000)) // which nobody reads
			wrote <- err
		}()
		time.Sleep(stalledAfter)
		c.Reader.startAhead(time.Now())
		for range 60 {
			time.Sleep(time.Second)
			writeAll(t, there, []byte("*"))
		}
		began := time.Now()
		if err := <-wrote; err == nil || time.Since(began) < 5*time.Second || time.Since(began) > 10*time.Second {
			t.Errorf("%v after %v without a sign", err, time.Since(began))
		}
		there.Close()
		c.CloseAccounts()
	})
}

// givenUp is a socket whose peer the kernel has given up: it tells a reader so once, and then only that the pipe is
// broken.
type givenUp struct {
	net.Conn
	up chan struct{}
}

func (g givenUp) NetConn() net.Conn { return &net.TCPConn{} }

func (g givenUp) Read([]byte) (int, error) {
	<-g.up
	return 0, &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}
}

func (g givenUp) Write([]byte) (int, error) {
	<-g.up
	time.Sleep(time.Millisecond)
	return 0, &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}
}

// A client that the kernel has given up has not gone, whoever hears it first: it may still count on its locks.
func TestGivenUpWhileReadAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		up := make(chan struct{})
		c := newTestConn(t, givenUp{here, up})
		go func() { time.Sleep(time.Second); c.Reader.startAhead(time.Now()); close(up) }()
		c.Write(make([]byte, 1000))
		if how, why := c.End.Reason(); how != Left || why != "no sign of life" {
			t.Error(how, why)
		}
		c.CloseAccounts()
	})
}

// The end of the stream comes to the client whatever is put around its socket.
func TestCloseWriteReachesTheSocket(t *testing.T) {
	t.Parallel()
	conn, accepted := connected(t, "tcp")
	closeWrite(&proxiedConn{Conn: &deadlineRenewer{Conn: socket.Direct(accepted)}})
	conn.SetReadDeadline(time.Now().Add(patience))
	if n, err := conn.Read(make([]byte, 4096)); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
}
