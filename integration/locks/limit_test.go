package locks

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// A lock with LIMIT is held by as many as it says; a client that goes gives its place back, what it cannot go with is refused, and nothing is left.
func TestLimit(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		a, b, c := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
		for range 2 { // it has one place, however often it says so
			harness.Expect(t, a, "+OK\r\n", "LOCK", "k", "LIMIT", "2")
		}
		harness.Expect(t, b, "+OK\r\n", "LOCK", "k", "LIMIT", "2", "OWNER", "job", "PX", "60000")
		harness.Expect(t, c, "$-1\r\n", "LOCK", "k", "LIMIT", "2")
		harness.Expect(t, c, "$-1\r\n", "LOCK", "k", "LIMIT", "2", "BLOCK", "20")
		harness.Expect(t, c, "+OK\r\n", "LOCK", "k", "LIMIT", "3")
		harness.Expect(t, c, ":1\r\n", "UNLOCK", "k")
		for _, r := range []struct{ call, want string }{
			{"LOCK k LIMIT 0", "-ERR value is not an integer or out of range near 'LIMIT'"}, {"LOCK k LIMIT", "-ERR syntax error near 'LIMIT'"},
			{"LOCK k LIMIT 2 LIMIT 3", "-ERR syntax error near 'LIMIT'"}, {"LOCK k LIMIT 2 FENCE", "-ERR syntax error near 'FENCE'"},
			{"LOCK k REPLICAS 1 LIMIT 2", "-ERR syntax error near 'LIMIT'"}, {"FAIRLOCK k LIMIT 2", "-ERR syntax error near 'LIMIT'"},
			{"RLOCK k LIMIT 2", "-ERR syntax error near 'LIMIT'"}, {"MULTILOCK 1 k LIMIT 2", "-ERR syntax error near 'LIMIT'"},
			{"LOCK {k} LIMIT 2", "-ERR '{k}' cannot be a lock with LIMIT"}, {"LOCK {k}:timeout", "-ERR '{k}:timeout' cannot be a lock"},
			{"LOCK k", "-WRONGTYPE "}, {"RLOCK k", "-WRONGTYPE "}, {"FENCED k OWNER job SET x y", "-WRONGTYPE "}, {"UNLOCK k READ", "-NOTHELD "},
			{"UNLOCK k OWNER nobody", "-NOTHELD "}, {"RENEW k OWNER nobody PX 100", "-NOTHELD "}, {"UNLOCK k", "-NOTHELD "},
			{"RENEW k OWNER job PX 90000", ":1\r\n"},
		} {
			if got := c.Do(strings.Split(r.call, " ")...); !strings.HasPrefix(got, r.want) {
				t.Errorf("%s: %q", r.call, got)
			}
		}
		if info := a.Do("LOCKINFO", "k"); !strings.Contains(info, "\r\nlimit\r\n") || !strings.Contains(info, "\r\njob\r\n") {
			t.Errorf("%q", info)
		}
		got := make(chan string, 1)
		go func() { got <- c.Do("LOCK", "k", "LIMIT", "2", "BLOCK", "0") }()
		a.Close()
		if reply := <-got; reply != "+OK\r\n" {
			t.Errorf("the waiter: %q", reply)
		}
		harness.Expect(t, c, ":1\r\n", "UNLOCK", "k")
		harness.Expect(t, b, ":1\r\n", "UNLOCK", "k", "OWNER", "job")
		harness.Expect(t, b, ":0\r\n", "DBSIZE")
	})
}
