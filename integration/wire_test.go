package integration

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

// wire is a raw connection that speaks RESP. Its reader of replies is its own, not the product's.
type wire struct {
	t testing.TB
	c net.Conn
	r *bufio.Reader
}

// dial connects to addr, host:port; the connection is closed with the test.
func dial(t testing.TB, addr string) *wire {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return newWire(t, c)
}

func newWire(t testing.TB, c net.Conn) *wire { return &wire{t, c, bufio.NewReader(c)} }

// dial3 is dial with RESP3 switched on.
func dial3(t testing.TB, addr string) *wire {
	t.Helper()
	w := dial(t, addr)
	if got := w.do("HELLO", "3"); !strings.HasPrefix(got, "%") {
		t.Fatalf("HELLO 3: %q", got)
	}
	return w
}

// dialHearing is dial3 for a client that is told of lost locks.
func dialHearing(t testing.TB, addr string) *wire {
	t.Helper()
	w := dial3(t, addr)
	expect(t, w, "+OK\r\n", "CLIENT", "CAPA", "lock-lost")
	return w
}

// do sends one command and returns its raw reply; a broken connection fails the test.
func (w *wire) do(args ...string) string {
	w.t.Helper()
	reply, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// try is do for connections that may break, and for goroutines.
func (w *wire) try(args ...string) (string, error) {
	if err := w.trySend(args...); err != nil {
		return "", err
	}
	return w.tryRead(2 * patience)
}

// send writes one command.
func (w *wire) send(args ...string) {
	w.t.Helper()
	if err := w.trySend(args...); err != nil {
		w.t.Fatalf("%q: %v", args, err)
	}
}

func (w *wire) trySend(args ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := io.WriteString(w.c, b.String())
	return err
}

// read returns the next frame, raw.
func (w *wire) read() string {
	w.t.Helper()
	frame, err := w.tryRead(2 * patience)
	if err != nil {
		w.t.Fatalf("reading a reply: %v", err)
	}
	return frame
}

// silent says that no frame begins within d; the connection stays usable.
func (w *wire) silent(d time.Duration) bool {
	w.t.Helper()
	_ = w.c.SetReadDeadline(time.Now().Add(d))
	_, err := w.r.Peek(1)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("waiting for silence: %v", err)
	}
	return err != nil
}

// closed waits until the other side has closed the connection, and says whether it has.
func (w *wire) closed() bool {
	_, err := w.tryRead(patience)
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// tryRead returns the next frame, or an error after d.
func (w *wire) tryRead(d time.Duration) (string, error) {
	_ = w.c.SetReadDeadline(time.Now().Add(d))
	var b strings.Builder
	err := w.frame(&b)
	return b.String(), err
}

// frame copies one reply frame of RESP2 or RESP3 to b.
func (w *wire) frame(b *strings.Builder) error {
	line, err := w.r.ReadString('\n')
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
		_, err := io.CopyN(b, w.r, int64(n)+2)
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

// close hangs up with a FIN.
func (w *wire) close() { _ = w.c.Close() }

// reset hangs up with a RST.
func (w *wire) reset() {
	if tcp, ok := w.c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = w.c.Close()
}
