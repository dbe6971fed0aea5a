package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Wire is a raw connection that speaks RESP. Its reader of replies is its own, not the product's.
type Wire struct {
	T testing.TB
	C net.Conn
	R *bufio.Reader
}

// Connect is for goroutines, and for servers that may be away.
func Connect(addr string) (net.Conn, error) { return net.DialTimeout("tcp", addr, Patience) }

// Dial connects to addr, host:port; the connection is closed with the test.
func Dial(t testing.TB, addr string) *Wire {
	t.Helper()
	c, err := Connect(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return NewWire(t, c)
}

func NewWire(t testing.TB, c net.Conn) *Wire { return &Wire{t, c, bufio.NewReader(c)} }

// Dial3 is dial with RESP3 switched on. It is tried again when a lockproxy could not connect to its Redis in time, or hung up: the first
// of its clients in RESP3 waits for a connection that is made then, and on a busy machine that may take too long.
func Dial3(t testing.TB, addr string) *Wire {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		w := Dial(t, addr)
		got, err := w.Try("HELLO", "3")
		if strings.HasPrefix(got, "%") {
			return w
		}
		if w.Close(); time.Now().After(end) || err == nil && !strings.HasPrefix(got, "-ERR upstream unavailable") {
			t.Fatalf("HELLO 3: %q %v", got, err)
		}
	}
}

// DialHearing is dial3 for a client that is told of lost locks.
func DialHearing(t testing.TB, addr string) *Wire {
	t.Helper()
	w := Dial3(t, addr)
	Expect(t, w, "+OK\r\n", "CLIENT", "CAPA", "lock-lost")
	return w
}

// Do sends one command and returns its raw reply; a broken connection fails the test.
func (w *Wire) Do(args ...string) string {
	w.T.Helper()
	reply, err := w.Try(args...)
	if err != nil {
		w.T.Fatalf("%q: %v", args, err)
	}
	return reply
}

// Try is do for connections that may break, and for goroutines.
func (w *Wire) Try(args ...string) (string, error) {
	if err := w.TrySend(args...); err != nil {
		return "", err
	}
	return w.TryRead(2 * Patience)
}

// Send writes one command.
func (w *Wire) Send(args ...string) {
	w.T.Helper()
	if err := w.TrySend(args...); err != nil {
		w.T.Fatalf("%q: %v", args, err)
	}
}

func (w *Wire) TrySend(args ...string) error {
	_, err := w.C.Write(encode(nil, args))
	return err
}

// Read returns the next frame, raw.
func (w *Wire) Read() string {
	w.T.Helper()
	frame, err := w.TryRead(2 * Patience)
	if err != nil {
		w.T.Fatalf("reading a reply: %v", err)
	}
	return frame
}

// Silent says that no frame begins within d; the connection stays usable.
func (w *Wire) Silent(d time.Duration) bool {
	w.T.Helper()
	_ = w.C.SetReadDeadline(time.Now().Add(d))
	_, err := w.R.Peek(1)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		w.T.Fatalf("waiting for silence: %v", err)
	}
	return err != nil
}

// Closed waits until the other side has closed the connection, and says whether it has.
func (w *Wire) Closed() bool {
	_, err := w.TryRead(Patience)
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// TryRead returns the next frame, or an error after d.
func (w *Wire) TryRead(d time.Duration) (string, error) {
	_ = w.C.SetReadDeadline(time.Now().Add(d))
	var b strings.Builder
	err := w.frame(&b)
	return b.String(), err
}

// frame copies one reply frame of RESP2 or RESP3 to b.
func (w *Wire) frame(b *strings.Builder) error {
	line, err := w.R.ReadString('\n')
	b.WriteString(line)
	if err != nil {
		return err
	}
	if len(line) < 3 {
		return fmt.Errorf("not a frame: %q", line)
	}
	n, _ := strconv.Atoi(line[1 : len(line)-2])
	switch line[0] {
	case '+', '-', ':', '_', '#', ',', '(':
		return nil
	case '$', '=', '!':
		if n < 0 {
			return nil
		}
		if n+2 > w.R.Buffered() {
			_, err := io.CopyN(b, w.R, int64(n)+2)
			return err
		}
		text, _ := w.R.Peek(n + 2) // it is there, as nearly always: tests read millions of them
		b.Write(text)
		_, err := w.R.Discard(n + 2)
		return err
	case '%':
		n *= 2
	case '|':
		n = 2*n + 1
	case '*', '~', '>':
	default:
		return fmt.Errorf("not a frame: %q", line)
	}
	for range n {
		if err := w.frame(b); err != nil {
			return err
		}
	}
	return nil
}

// Close hangs up with a FIN.
func (w *Wire) Close() { _ = w.C.Close() }

// CloseSurely is Close that returns once the other side's kernel has the FIN: on a busy machine it may come after what another
// connection says later. Elsewhere than on Linux it is Close.
func (w *Wire) CloseSurely() {
	w.T.Helper()
	defer w.Close()
	if tcp, ok := w.C.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		Eventually(w.T, "the FIN has arrived", func() bool { return finArrived(tcp) })
	}
}

// Reset hangs up with a RST.
func (w *Wire) Reset() {
	if tcp, ok := w.C.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = w.C.Close()
}

// Pipeline writes all in one write, reading meanwhile, and returns n replies.
func (w *Wire) Pipeline(all string, n int) []string {
	w.T.Helper()
	written := make(chan error, 1)
	go w.writeAll(all, written)
	replies := make([]string, n)
	for i := range replies {
		replies[i] = w.Read()
	}
	if err := <-written; err != nil {
		w.T.Fatalf("writing a pipeline: %v", err)
	}
	return replies
}

func (w *Wire) writeAll(all string, done chan<- error) {
	_, err := io.WriteString(w.C, all)
	done <- err
}

func (w *Wire) TryPipeline(commands [][]string) ([]string, error) {
	done := make(chan error, 1)
	go w.writeAll(EncodeAll(commands), done)
	replies := make([]string, len(commands))
	for i := range replies {
		var err error
		if replies[i], err = w.TryRead(2 * Patience); err != nil {
			return replies, err
		}
	}
	return replies, <-done
}

// TryQuorum is Try, again while the reply is NOQUORUM: the nodes of a busy machine may be late.
func (w *Wire) TryQuorum(args ...string) (reply string, err error) {
	for end := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		if reply, err = w.Try(args...); err != nil || !strings.HasPrefix(reply, "-NOQUORUM ") || time.Now().After(end) {
			return reply, err
		}
	}
}

// Expect sends a command and compares the raw reply.
func Expect(t testing.TB, w *Wire, want string, args ...string) {
	t.Helper()
	if got := w.Do(args...); got != want {
		t.Fatalf("%q: %q, want %q", args, got, want)
	}
}
