package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Before a cluster SELECT answers what a Redis 7 in cluster mode answers, and no node gets the number of a database that it may have besides
// 0: the connection that it would move there is other clients', too, or becomes so.
func TestSelectOnACluster(t *testing.T) {
	t.Parallel()
	redis := testredis.StartCluster(t, 1, 0)
	p := startProxyOf(t, redis, nil)
	direct, through := dialWire(t, redis.Servers[0].Addr()), dialWire(t, p.addr)
	through.expect("+OK\r\n", "SELECT", "0") // no handshake of a new connection comes into what is watched
	watched := monitor(t, redis.Servers[0])
	for _, word := range []string{"0", "1", "16", "-1", "2147483647", "2147483648", "99999999999", "9223372036854775808", "x", "", "00", "+1", "1 "} {
		through.expect(direct.do("SELECT", word), "SELECT", word)
	}
	through.expect(direct.do("SELECT", "1", "2"), "SELECT", "1", "2")
	for _, w := range []*wire{direct, through} {
		w.expect("+OK\r\n", "WATCH", "k")
		w.expect("-ERR SELECT is not allowed in cluster mode\r\n", "SELECT", "1")
		w.expect("+OK\r\n", "MULTI")
	}
	for _, word := range []string{"1", "0", "-1", "16", "99999999999", "x"} {
		through.expect(direct.do("SELECT", word), "SELECT", word)
	}
	through.expect(direct.do("GET", "k"), "GET", "k")
	through.expect(direct.do("EXEC"), "EXEC")
	through.expect("$-1\r\n", "GET", "k")
	for _, word := range watched(direct.conn.LocalAddr().String()) {
		if n, ok := resp.Integer([]byte(word)); ok && n > 0 && n < 1<<31 {
			t.Errorf("a node was sent SELECT %s", word)
		}
	}
}

// A SELECT that Redis does not let the client's user say is refused for that.
func TestSelectOnAClusterIsForWhoMay(t *testing.T) {
	t.Parallel()
	redis := testredis.StartCluster(t, 1, 0)
	redis.Servers[0].Do(t, "ACL", "SETUSER", "eve", "on", ">e", "~*", "+@all", "-select")
	w := dialWire(t, startProxyOf(t, redis, nil).addr)
	w.expect("+OK\r\n", "AUTH", "eve", "e")
	w.expect("-NOPERM this user has no permissions to run the 'select' command\r\n", "SELECT", "1")
}

// monitor begins to watch what a server runs. The function that it returns tells what SELECTs of other clients than the one at an address came.
func monitor(t *testing.T, s *testredis.Server) func(but string) []string {
	t.Helper()
	w := dialWire(t, s.Addr())
	w.expect("+OK\r\n", "MONITOR")
	return func(but string) (words []string) {
		t.Helper()
		s.Do(t, "ECHO", "the end")
		for line := w.frame(); !strings.Contains(line, `"the end"`); line = w.frame() {
			if line[0] != '+' {
				t.Fatal(line)
			}
			var word string
			if _, of, is := strings.Cut(line, ` "SELECT" `); is && !strings.Contains(line, but) {
				fmt.Sscanf(of, "%q", &word)
				words = append(words, word)
			}
		}
		return words
	}
}
