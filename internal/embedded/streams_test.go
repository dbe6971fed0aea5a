package embedded

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// exchange sends a command and returns the reply's first bytes, as many as wanted.
func exchange(t *testing.T, c net.Conn, r *bufio.Reader, command string, wanted int) string {
	t.Helper()
	if _, err := fmt.Fprintf(c, "%s\r\n", asArray(command)); err != nil {
		t.Fatal(err)
	}
	return next(t, c, r, wanted)
}

func next(t *testing.T, c net.Conn, r *bufio.Reader, wanted int) string {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, wanted)
	for n := range b {
		var err error
		if b[n], err = r.ReadByte(); err != nil {
			t.Fatalf("%q: %v", b[:n], err)
		}
	}
	return string(b)
}

func asArray(command string) string {
	words := strings.Fields(command)
	var b strings.Builder
	fmt.Fprintf(&b, "*%d", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "\r\n$%d\r\n%s", len(word), word)
	}
	return b.String()
}

// XREAD and XREADGROUP answer in RESP3 what Redis answers, also when they wait.
func TestStreamsInRESP3(t *testing.T) {
	t.Parallel()
	store := startStore(t)
	for who, addr := range map[string]string{"Redis": testredis.Start(t).Addr(), "the store": store.Addr()} {
		dial := func() (net.Conn, *bufio.Reader) {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c, bufio.NewReader(c)
		}
		three := func() (net.Conn, *bufio.Reader) {
			c, r := dial()
			fmt.Fprintf(c, "%s\r\n%s\r\n", asArray("HELLO 3"), asArray("ECHO hello-is-over"))
			for line := ""; !strings.HasPrefix(line, "hello-is-over"); {
				var err error
				if line, err = r.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			return c, r
		}
		c, r := three()
		other, otherReader := dial()
		expect := func(command, want string) {
			t.Helper()
			if got := exchange(t, c, r, command, len(want)); got != want {
				t.Errorf("%s: %s: %q, want %q", who, command, got, want)
			}
		}
		const entry = "%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"
		expect("XREAD STREAMS s 0", "_\r\n")
		expect("XREAD BLOCK 10 STREAMS s 0", "_\r\n")
		expect("XADD s 1-1 a b", "$3\r\n1-1\r\n")
		expect("XREAD STREAMS s 0", entry)
		expect("XGROUP CREATE s g 0", "+OK\r\n")
		expect("XREADGROUP GROUP g c STREAMS s >", entry)
		expect("XREADGROUP GROUP g c BLOCK 10 STREAMS s >", "_\r\n")
		fmt.Fprintf(c, "%s\r\n", asArray("XREAD BLOCK 0 STREAMS t $"))
		// When it waits already the entry wakes it; else one of those that follow does.
		for end := time.Now().Add(time.Minute); r.Buffered() == 0; {
			exchange(t, other, otherReader, "XADD t * a b", 1)
			if _, err := otherReader.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			otherReader.ReadString('\n')
			c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			r.Peek(1)
			if time.Now().After(end) {
				t.Fatalf("%s: nothing wakes a waiting XREAD", who)
			}
		}
		if got := next(t, c, r, 11); got != "%1\r\n$1\r\nt\r\n" {
			t.Errorf("%s: a waiting XREAD: %q", who, got)
		}
		gone, _ := three()
		fmt.Fprintf(gone, "%s\r\n", asArray("XREAD BLOCK 0 STREAMS t $"))
		gone.Close()
	}
}
