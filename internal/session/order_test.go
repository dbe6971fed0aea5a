package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// One write with forwarded, local, refused and unknown commands and lock verbs: replies in the order of commands.
func TestMixedPipelineKeepsOrder(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	for _, proto := range []string{"2", "3"} {
		w := dialWire(t, p.addr)
		w.do("HELLO", proto)
		var out []byte
		var want []string
		add := func(reply string, args ...string) {
			out = resp.AppendCommand(out, args...)
			want = append(want, reply)
		}
		null := map[string]string{"2": "$-1\r\n", "3": "_\r\n"}[proto]
		for i := range 700 {
			n := fmt.Sprint(i)
			add("+OK\r\n", "SET", "k"+n, n)
			add(fmt.Sprintf("$%d\r\n%s\r\n", len(n), n), "GET", "k"+n)
			switch i % 7 {
			case 0:
				add("-ERR 'SYNC' is not supported by lockproxy\r\n", "SYNC")
			case 1:
				add("+OK\r\n", "CLIENT", "SETNAME", "n"+n)
			case 2:
				add(null, "GET", "nothing")
			case 3:
				add("-ERR unknown command 'NOSUCH', with args beginning with: 'a' \r\n", "NOSUCH", "a")
			case 4:
				add("+OK\r\n", "LOCK", "l")
				add(":1\r\n", "UNLOCK", "l")
			case 5:
				add("+OK\r\n", "SELECT", fmt.Sprint(i%2))
				add("+OK\r\n", "SELECT", "0")
			case 6:
				add("-ERR wrong number of arguments for 'get' command\r\n", "GET")
			}
		}
		w.raw(out)
		for i, reply := range want {
			if got := w.frame(); got != reply {
				t.Fatalf("RESP%s reply %d: %q, want %q", proto, i, got, reply)
			}
		}
	}
}

func TestQuitDropsTheRest(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	w := dialWire(t, p.addr)
	w.raw([]byte("SET a 1\r\nQUIT\r\nSET a 2\r\n"))
	if got := w.frame() + w.frame() + w.frame(); got != "+OK\r\n+OK\r\n<end>" {
		t.Fatalf("got %q", got)
	}
	dialWire(t, p.addr).expect("$1\r\n1\r\n", "GET", "a")
}

// The refusals leave the connection and everybody else's as they were.
func TestRefusedCommandsAreHarmless(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.Deny = []string{"keys", "config|set"} })
	other := dialWire(t, p.addr)
	other.expect("+OK\r\n", "SET", "k", "v")
	names := []string{"KEYS", "CONFIG|SET"}
	commandtable.New(nil, nil, nil, nil).All(func(c *commandtable.Command) {
		if c.Refusal {
			names = append(names, c.Name)
		}
	})
	for _, name := range names {
		w := dialWire(t, p.addr)
		words, fits := strings.Split(name, "|"), false
		for n := range 4 { // in front of the refusal Redis looks at the number of words
			got := w.do(append(words, []string{"a", "b", "c"}[:n]...)...)
			refused := strings.HasPrefix(got, "-ERR '")
			if fits = fits || refused; !refused && !strings.HasPrefix(got, "-ERR wrong number of arguments ") && !strings.HasPrefix(got, "-ERR unknown subcommand ") {
				t.Errorf("%s with %d more words: %q", name, n, got)
			}
		}
		if !fits {
			t.Errorf("%s is never refused", name)
		}
		w.expect("+PONG\r\n", "PING")
		other.expect("$1\r\nv\r\n", "GET", "k")
	}
}

func TestValuesOfAllSizes(t *testing.T) {
	t.Parallel()
	p, b := budgeted(t, testredis.Start(t), 4)
	w, small := dialWire(t, p.addr), dialWire(t, p.addr)
	small.expect("+PONG\r\n", "PING")
	small.expect("+OK\r\n", "SET", "k", "v")
	before, _ := b.Used()
	for _, size := range []int{0, 1, 4096, 64 << 10, 65<<10 + 1, 1 << 20, 5 << 20, 33<<20 + 7} {
		value := strings.Repeat("v", size)
		w.raw(resp.AppendCommand(resp.AppendCommand(resp.AppendCommand(nil, "SET", "k", value), "GET", "k"), "PING"))
		if got := w.frame(); got != "+OK\r\n" {
			t.Fatalf("SET of %d: %.50q", size, got)
		}
		if got := w.frame(); got != fmt.Sprintf("$%d\r\n%s\r\n", size, value) {
			t.Fatalf("GET of %d: %d bytes", size, len(got))
		}
		if got := w.frame(); got != "+PONG\r\n" {
			t.Fatalf("PING behind %d: %.50q", size, got)
		}
		small.expect("+PONG\r\n", "PING")
	}
	if used, _ := b.Used(); used > before+1 {
		t.Errorf("%d connections for long values", used-before)
	}
}
