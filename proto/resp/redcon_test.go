package resp

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/redcon"
)

// guarded is a net.Conn with the Reader in it, as the session has one: the
// smallest that makes redcon safe.
type guarded struct {
	net.Conn
	*Reader
	reads atomic.Int64
}

func (g *guarded) Read(p []byte) (int, error) {
	g.reads.Add(1)
	n, err := g.Reader.Read(p)
	if broken := new(ProtocolError); errors.As(err, &broken) {
		_, _ = g.Conn.Write(AppendError(nil, "ERR "+broken.Error()))
		return 0, io.EOF
	}
	return n, err
}

// guardedListener puts a Reader into every connection.
type guardedListener struct {
	net.Listener
	limits Limits
}

func (l guardedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &guarded{Conn: c, Reader: NewReader(c, l.limits)}, nil
}

// withLong has h handle a long command instead of the one that stands in for it.
func withLong(h func(redcon.Conn, redcon.Command)) func(redcon.Conn, redcon.Command) {
	return func(c redcon.Conn, cmd redcon.Command) {
		if long := c.NetConn().(*guarded).Long(); long != nil {
			words, n := CutCommand(nil, long)
			cmd = redcon.Command{Raw: long[:n], Args: words}
		}
		h(c, cmd)
	}
}

// serve runs a redcon server behind the guard and returns its address.
func serve(t *testing.T, l Limits, h func(redcon.Conn, redcon.Command)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := redcon.NewServer("", withLong(h), nil, nil)
	ended := make(chan error)
	go runServer(srv, guardedListener{ln, l}, ended)
	t.Cleanup(func() {
		_ = ln.Close()
		<-ended
	})
	return ln.Addr().String()
}

// runServer serves until the listener is closed.
func runServer(srv *redcon.Server, ln net.Listener, ended chan<- error) { ended <- srv.Serve(ln) }

func echo(c redcon.Conn, cmd redcon.Command) {
	switch {
	case string(cmd.Args[0]) == "PING":
		c.WriteString("PONG")
	case len(cmd.Args) > 1:
		c.WriteBulk(cmd.Args[1])
	default:
		c.WriteBulk(cmd.Args[0])
	}
}

// replies are what echo answers to the commands q lets through.
func (q sent) replies(t *testing.T) string {
	var b []byte
	rd := redcon.NewReader(strings.NewReader(q.out))
	for {
		cmd, err := rd.ReadCommand()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case string(cmd.Args[0]) == "PING":
			b = AppendSimple(b, "PONG")
		case len(cmd.Args) > 1:
			b = AppendBulk(b, cmd.Args[1])
		default:
			b = AppendBulk(b, cmd.Args[0])
		}
	}
	if q.err != "" {
		b = AppendError(b, "ERR Protocol error: "+q.err)
	}
	return string(b)
}

func TestThroughRedcon(t *testing.T) {
	addr := serve(t, Limits{}, echo)
	for _, q := range requests {
		t.Run(q.name, func(t *testing.T) {
			got := ask(t, addr, q)
			if want := q.replies(t); got != want {
				t.Errorf("got %.300q\nwant %.300q", got, want)
			}
		})
	}
}

// ask sends q over a connection of its own and returns all that is answered
// until the server hangs up: by itself after an error, else because we do.
func ask(t *testing.T, addr string, q sent) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, q.in); err != nil {
		t.Fatal(err)
	}
	if q.err == "" {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	got, err := io.ReadAll(c)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		t.Fatal(err)
	}
	return string(got)
}

// redcon's own parser executes what is pipelined behind a QUIT unless the
// handler takes it away; the Reader keeps the order in which it came.
func TestPipelineOrder(t *testing.T) {
	var names []string
	addr := serve(t, Limits{}, func(c redcon.Conn, cmd redcon.Command) {
		names = append(names, string(cmd.Args[0]))
		c.WriteString("OK")
		if string(cmd.Args[0]) == "QUIT" {
			c.ReadPipeline()
			_ = c.Close()
		}
	})
	got := ask(t, addr, sent{in: ping + "QUIT\r\n" + mb("SET", "a", "b") + mb("FLUSHALL")})
	if got != "+OK\r\n+OK\r\n" || strings.Join(names, " ") != "PING QUIT" {
		t.Errorf("%q %q", got, names)
	}
}

// fakeConn is a client that sends its bytes one by one.
type fakeConn struct {
	net.Conn // nil: redcon uses nothing else of it
	text     string
	wrote    strings.Builder
	closed   chan struct{}
	once     sync.Once
}

func (c *fakeConn) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	p[0], c.text = c.text[0], c.text[1:]
	return 1, nil
}
func (c *fakeConn) Write(p []byte) (int, error) { return c.wrote.Write(p) }
func (c *fakeConn) Close() error                { c.once.Do(func() { close(c.closed) }); return nil }
func (c *fakeConn) RemoteAddr() net.Addr        { return &net.TCPAddr{} }

// oneConn is a listener with one connection.
type oneConn struct {
	net.Listener
	conns chan net.Conn
}

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l oneConn) Close() error   { return nil }
func (l oneConn) Addr() net.Addr { return &net.TCPAddr{} }

func TestByteAtATime(t *testing.T) {
	value := strings.Repeat("v", 3<<20)
	args := mb(strings.Split(strings.Repeat("a", 30_000), "")...)
	for _, c := range []struct {
		name, in, out string
		reads         int64
	}{
		{"overflow", "*1\r\n$9223372036854775807\r\n", "-ERR Protocol error: invalid bulk length\r\n", 1},
		{"spin", "*9223372036854775807\r\n", "-ERR Protocol error: invalid multibulk length\r\n", 1},
		{"prefix", ping + "*1\r\n$-7\r\n", "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n", 2},
		// redcon calls itself once a Read without a command.
		{"one big bulk", mb("LEN", value), ":3145728\r\n", 2},
		{"many arguments", args, ":1\r\n", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := &fakeConn{text: c.in, closed: make(chan struct{})}
			g := &guarded{Conn: client, Reader: NewReader(client, Limits{})}
			ln := oneConn{conns: make(chan net.Conn, 1)}
			ln.conns <- g
			srv := redcon.NewServer("", withLong(func(c redcon.Conn, cmd redcon.Command) {
				if string(cmd.Args[0]) == "PING" {
					c.WriteString("PONG")
					return
				}
				c.WriteInt(len(cmd.Args[1]))
			}), nil, nil)
			ended := make(chan error)
			go runServer(srv, ln, ended)
			<-client.closed
			close(ln.conns)
			<-ended
			if got := client.wrote.String(); got != c.out {
				t.Errorf("got %q, want %q", got, c.out)
			}
			if n := g.reads.Load(); n > c.reads {
				t.Errorf("%d reads by redcon, want at most %d", n, c.reads)
			}
		})
	}
}

// counted counts the reads of redcon's reader.
type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	c.n++
	return c.Reader.Read(p)
}

func TestRedconStaysShallowAndGivesMemoryBack(t *testing.T) {
	const size = 16 << 20
	head := "*2\r\n$4\r\nECHO\r\n$16777216\r\n"
	guard := NewReader(io.MultiReader(
		strings.NewReader(echoes(3)+head),
		// 1460 bytes, as from a network
		&pieces{io.LimitReader(blank{}, size), 1460},
		strings.NewReader("\r\n"), strings.NewReader(ping), strings.NewReader(ping),
	), Limits{})
	src := &counted{Reader: guard}
	rd := redcon.NewReader(src)
	for i := range 5 {
		before := src.n
		cmd, err := rd.ReadCommand()
		if err != nil {
			t.Fatal(i, err)
		}
		if long := guard.Long(); (long != nil) != (i == 3) || i == 3 && len(long) != len(head)+size+2 {
			t.Fatal(i, len(long), len(cmd.Raw))
		}
		if src.n-before > 2 {
			t.Errorf("command %d: redcon read %d times", i, src.n-before)
		}
	}
	if cmd, err := rd.ReadCommand(); err != nil || len(cmd.Args) != 1 {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > size/2 {
		t.Errorf("%d MB still held behind a command of %d MB", m.HeapAlloc>>20, size>>20)
	}
	runtime.KeepAlive(rd)
}

// Where a command ends near the end of redcon's buffer, the next one does not make that grow.
func TestRedconsBufferDoesNotGrow(t *testing.T) {
	for size := 3900; size < 4100; size++ {
		text := mb("ECHO", strings.Repeat("x", size-25)) + mb("ECHO", strings.Repeat("y", 300)) + ping
		guard := NewReader(&chopped{text, every(size)}, Limits{})
		src := &longest{Reader: guard}
		rd := redcon.NewReader(src)
		for i, want := range []string{"x", "y", "PING"} {
			cmd, err := rd.ReadCommand()
			if err != nil {
				t.Fatal(size, i, err)
			}
			last := cmd.Args[len(cmd.Args)-1]
			if long := guard.Long(); long != nil {
				words, _ := CutCommand(nil, long)
				last = words[1]
			}
			if !strings.HasPrefix(string(last), want) {
				t.Fatalf("%d: command %d is %.20q", size, i, last)
			}
		}
		if src.n > 4096 {
			t.Fatal(size, src.n)
		}
	}
}

// longest remembers the longest slice that was to be read into.
type longest struct {
	io.Reader
	n int
}

func (l *longest) Read(p []byte) (int, error) {
	l.n = max(l.n, len(p))
	return l.Reader.Read(p)
}

// blank is a source of zero bytes.
type blank struct{}

func (blank) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// pieces reads at most size bytes at once.
type pieces struct {
	io.Reader
	size int
}

func (c *pieces) Read(p []byte) (int, error) { return c.Reader.Read(p[:min(len(p), c.size)]) }
