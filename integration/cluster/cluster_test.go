package cluster

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What concerns all of the cluster, and what is not there.
func TestClusterWhole(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	w := harness.Dial(t, p.Addr())
	var mset []string
	for i := range 300 {
		mset = append(mset, fmt.Sprint("k", i), "v")
	}
	harness.Expect(t, w, "+OK\r\n", append([]string{"MSET"}, mset...)...)
	harness.Expect(t, w, ":300\r\n", "DBSIZE")
	if _, keys := harness.Split(w.Do("KEYS", "k*")); len(keys) != 300 {
		t.Errorf("KEYS: %d", len(keys))
	}
	seen := map[string]bool{}
	for cursor := "0"; ; {
		_, parts := harness.Split(w.Do("SCAN", cursor, "COUNT", "20"))
		_, keys := harness.Split(parts[1])
		for _, k := range keys {
			seen[k] = true
		}
		if cursor = strings.Split(parts[0], "\r\n")[1]; cursor == "0" {
			break
		}
	}
	if len(seen) != 300 {
		t.Errorf("SCAN: %d", len(seen))
	}
	for _, c := range []struct{ cmd, want string }{
		{"SELECT 0", "+OK\r\n"}, {"SELECT 1", "-ERR SELECT is not allowed in cluster mode\r\n"},
		{"CLUSTER SLOTS", "-ERR This instance has cluster support disabled\r\n"}, {"READONLY", "-ERR This instance has cluster support disabled\r\n"},
		{"LOCK a", "+OK\r\n"}, {"UNLOCK a", ":1\r\n"}, {"FENCED a GET b", "-CROSSSLOT Keys in request don't hash to the same slot: what FENCED runs must have its keys in the lock's own slot; give both the same hash tag, as in {order:7}:lock and {order:7}:stock\r\n"},
		{"CLIENT TRACKING ON", "-ERR CLIENT TRACKING is not available with a cluster upstream: lockproxy does not track keys over several nodes\r\n"},
		{"CLIENT TRACKING OFF", "+OK\r\n"}, {"EXEC", "-ERR EXEC without MULTI\r\n"}, {"DISCARD", "-ERR DISCARD without MULTI\r\n"}, {"UNWATCH", "+OK\r\n"},
		{"SHUTDOWN NOSAVE", "-ERR 'SHUTDOWN' is of one node: lockproxy does not send it to a cluster\r\n"},
		{"WAIT 0 100", ":0\r\n"}, {"WAIT 1 50", ":0\r\n"}, {"WAIT x 50", "-ERR value is not an integer or out of range\r\n"}, {"PING", "+PONG\r\n"}, {"CLIENT PAUSE 0", "+OK\r\n"}, {"CLIENT UNPAUSE", "+OK\r\n"},
		{"SCRIPT KILL", "-NOTBUSY No scripts in execution right now.\r\n"}, {"RENAME k1 k2", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"},
		{"SORT k1 BY nosort STORE k2", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"}, {"NOSUCH x", "-ERR unknown command 'NOSUCH', with args beginning with: 'x' \r\n"},
		{"XREAD STREAMS k1 k2 0 0", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"}, {"EVAL return{KEYS[1],ARGV[1]} 1 k1 a", "*2\r\n$2\r\nk1\r\n$1\r\na\r\n"},
	} {
		harness.Expect(t, w, c.want, strings.Fields(c.cmd)...)
	}
	// Where the arguments or the place are wrong, Redis judges the key's slot first: nobody is told MOVED for it.
	for i := range 12 {
		key := fmt.Sprint("points", i)
		harness.Expect(t, w, "-ERR syntax error\r\n", "GEORADIUS", key, "13", "50", "50", "km", "STORE")
		harness.Expect(t, w, "+OK\r\n", "MULTI")
		harness.Expect(t, w, "-ERR WATCH inside MULTI is not allowed\r\n", "WATCH", key)
		ends := "*0\r\n"
		if testredis.Valkey() { // it aborts a transaction for that
			ends = "-EXECABORT Transaction discarded because of previous errors.\r\n"
		}
		harness.Expect(t, w, ends, "EXEC")
	}
	info := w.Do("INFO")
	for _, part := range []string{"redis_mode:standalone", "cluster_enabled:0", "# Lockproxy", "lockproxy_cluster_masters:3"} {
		if !strings.Contains(info, part) {
			t.Errorf("INFO lacks %s", part)
		}
	}
	if hello := w.Do("HELLO", "3"); !strings.Contains(hello, "standalone") {
		t.Errorf("HELLO: %q", hello)
	}
	big := strings.Repeat("x", 3<<20)
	for range 3 {
		harness.Expect(t, w, "+OK\r\n", "MSET", "big", big, "k1", "v")
		harness.Expect(t, w, fmt.Sprintf("*2\r\n$1\r\nv\r\n$%d\r\n%s\r\n", len(big), big), "MGET", "k1", "big")
	}
	harness.Expect(t, w, "+OK\r\n", "FLUSHALL")
	harness.Expect(t, w, ":0\r\n", "DBSIZE")
}

// Users are Redis' own, at whatever node their commands go to.
func TestClusterUsers(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, "--requirepass secret")
	for _, s := range tc.Servers {
		s.Do(t, "ACL", "SETUSER", "reader", "on", ">r", "~*", "&*", "+@read", "+multi", "+exec", "+auth", "+hello", "+ping")
	}
	// What docs/OPERATIONS.md says that the service account needs.
	for _, s := range tc.Servers {
		s.Do(t, "ACL", "SETUSER", "service", "on", ">s", "~*", "+cluster|shards", "+cluster|slots", "+cluster|nodes", "+command", "+ping", "+exists")
	}
	p := harness.StartProxy(t, "redis-cluster://service:s@"+tc.Servers[0].Addr())
	w := harness.Dial(t, p.Addr())
	for _, c := range []struct{ cmd, want string }{
		{"GET a", "-NOAUTH Authentication required.\r\n"}, {"MULTI", "-NOAUTH Authentication required.\r\n"}, {"BLPOP a 1", "-NOAUTH Authentication required.\r\n"},
		{"AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"}, {"AUTH secret", "+OK\r\n"}, {"MSET a 1 b 2 c 3", "+OK\r\n"},
		{"AUTH reader r", "+OK\r\n"}, {"MGET a b c", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n"},
		{"MULTI", "+OK\r\n"}, {"GET a", "+QUEUED\r\n"}, {"EXEC", "*1\r\n$1\r\n1\r\n"},
	} {
		harness.Expect(t, w, c.want, strings.Fields(c.cmd)...)
	}
	for _, cmd := range []string{"SET a 2", "MSET a 1 b 2", "BLPOP a 1", "WATCH a", "FLUSHALL", "SUBSCRIBE x"} {
		if got := w.Do(strings.Fields(cmd)...); !strings.HasPrefix(got, "-NOPERM ") {
			t.Errorf("%s: %q", cmd, got)
		}
	}
	if got := w.Do("HELLO", "3", "AUTH", "default", "secret"); !strings.HasPrefix(got, "%") {
		t.Errorf("HELLO: %q", got)
	}
	harness.Expect(t, w, "+OK\r\n", "SET", "a", "2")
	harness.Expect(t, w, "+RESET\r\n", "RESET")
	harness.Expect(t, w, "-NOAUTH Authentication required.\r\n", "GET", "a")
}

// A cluster that is not there yet is waited for.
func TestClusterComesLater(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	for _, s := range tc.Servers {
		s.Stop()
	}
	p := harness.LaunchProxy(t, "redis-cluster://"+tc.Servers[0].Addr())
	harness.Eventually(t, "it waits", func() bool { return strings.Contains(p.Log(), "the cluster is not there yet") })
	for _, s := range tc.Servers {
		s.Cont()
	}
	harness.Eventually(t, "a write", func() bool {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			return false
		}
		defer c.Close()
		got, err := harness.NewWire(t, c).Try("SET", "a", "1")
		return err == nil && got == ok
	})
}

// While it waits, the log says so once, however often it looks.
func TestClusterThatComesLaterIsToldOfOnce(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	var looks atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			looks.Add(1)
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "*") {
						io.WriteString(c, "-ERR not yet\r\n")
					}
				}
			}()
		}
	}()
	p := harness.LaunchProxy(t, "redis-cluster://"+ln.Addr().String())
	harness.Eventually(t, "it has looked often", func() bool { return looks.Load() >= 4 })
	if n := strings.Count(p.Log(), "the cluster is not there yet"); n != 1 {
		t.Errorf("told %d times:\n%s", n, p.Log())
	}
}

// Who names a node of a cluster as a Redis alone reads in the log what is meant, whatever the service account may do.
func TestANodeOfAClusterAlone(t *testing.T) {
	t.Parallel()
	node := testredis.StartCluster(t, 3, 0).Servers[0]
	node.Do(t, harness.ServicePermissions(t, "")...)
	p := harness.StartProxy(t, "redis://service:secret@"+node.Addr())
	harness.Eventually(t, "the log says it", func() bool { return strings.Contains(p.Log(), "the upstream is a node of a Redis Cluster") })
}
