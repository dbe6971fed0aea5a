package upstream

import (
	"net"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What comes without being asked for ends the connection, whatever it is, and only an error is quoted.
func TestUnaskedFor(t *testing.T) {
	t.Parallel()
	const unasked = "a reply that nobody asked for"
	for sent, want := range map[string]string{
		"-ERR max number of clients reached\r\n": "Redis said ERR max number of clients reached",
		"-" + strings.Repeat("x", 300) + "\r\n":  unasked,
		"$1\r\nx\r\n":                            unasked,
		"\r\n":                                   unasked,
		"\r\n+OK\r\n":                            unasked,
		"\n":                                     unasked,
		"\x00":                                   unasked,
	} {
		ours, theirs := net.Pipe()
		rd := newReader(newLink(ours, true, 1))
		rd.end = copy(rd.buf, sent)
		if err := rd.consume(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", sent, err, want)
		}
		ours.Close()
		theirs.Close()
	}
}

// TestErrorsThatMaySpill: a private connection for scripts is the next client's only if no reply had an error in it, since Redis 8.2.3 sends
// what a script puts behind a line end of its error as if it were the next reply, perhaps when that client has it already.
func TestErrorsThatMaySpill(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	for script, kept := range map[string]bool{
		"return 'a-b'":                                  true,
		"return {-1, {ok = '-'}}":                       true,
		"return redis.error_reply('ERR a')":             false,
		"return {1, {redis.error_reply('ERR within')}}": false,
	} {
		for _, of := range []Purpose{Scripts, Commands} {
			p, err := n.Private(t.Context(), Identity{Proto: 2, For: of})
			if err != nil {
				t.Fatal(err)
			}
			var c client
			for range 2 { // the client that has it goes on
				if _, err := c.do(p, []string{"EVAL", script, "0"}); err != nil {
					t.Errorf("%s: %v", script, err)
				}
			}
			p.Release()
			n.mu.Lock()
			if again := n.find(p.id, privatePipe) == p; again != (kept || of == Commands) {
				t.Errorf("%s on a connection for %v: it is the next client's: %t", script, of, again)
			}
			n.mu.Unlock()
		}
	}
}
