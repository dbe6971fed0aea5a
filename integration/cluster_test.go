package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// clusterURL names one node, which is enough.
func clusterURL(tc *testredis.Cluster) string { return "redis-cluster://" + tc.Servers[0].Addr() }

func startClusterProxy(t *testing.T, tc *testredis.Cluster, args ...string) *proxy {
	t.Helper()
	return startProxy(t, clusterURL(tc), args...)
}

// tagged has a generator's command use keys of one slot only: {t} goes before all it makes up, and before those that
// templates name.
func tagged(args []string) []string {
	for i, a := range args[min(1, len(args)):] {
		args[i+1] = strings.ReplaceAll(a, "'absent:0'", "'{t}absent:0'")
		switch kind, number, is := strings.Cut(a, ":"); {
		case a == "c1", a == "c2", a == "one", a == "lone", a == "solo",
			is && number != "" && strings.Contains(" str hash list set zset stream hll geo bits absent ", " "+kind+" "):
			args[i+1] = "{t}" + a
		}
	}
	return args
}

// unlikeCluster are commands that a node of a cluster answers otherwise than a Redis alone, or that say which server, or
// how many, they come from.
func unlikeCluster(args []string) bool {
	switch name := strings.ToUpper(args[0]); name {
	case "SELECT", "SWAPDB", "MOVE", "COPY", "SORT", "SORT_RO", "CONFIG", "ROLE", "FAILOVER", "DBSIZE", "SCAN", "KEYS", "MEMORY", "SLOWLOG", "LATENCY":
		return true
	case "SCRIPT", "FUNCTION", "FCALL", "FCALL_RO", "EVALSHA", "EVALSHA_RO", "SPUBLISH": // 0 keys, or merged replies
		return name == "FUNCTION" || name == "SPUBLISH"
	}
	return false
}

// Random commands whose keys share a slot: every reply is that of a Redis alone.
func TestClusterRandomCommands(t *testing.T) {
	tc := testredis.StartCluster(t, 3, 0, alikeConfig...)
	through := startClusterProxy(t, tc)
	protocols(t, func(t *testing.T, proto int) {
		direct := testredis.Start(t, alikeConfig...)
		p := &pair{direct: direct, proxy: through}
		w, g := dial(t, direct.Addr()), newGenerator(seed(t), true)
		v := dial(t, through.Addr())
		if proto == 3 {
			w, v = dial3(t, direct.Addr()), dial3(t, through.Addr())
		}
		v.do("FLUSHALL")
		v.do("SCRIPT", "FLUSH")
		v.do("FUNCTION", "FLUSH")
		for n := range 2500 {
			args := tagged(g.next())
			if unlikeCluster(args) {
				continue
			}
			got := v.do(args...)
			if strings.HasPrefix(got, "-CROSSSLOT ") { // another word was taken for a key, as by Redis itself
				if said := dial(t, tc.Servers[0].Addr()).do(args...); said != got {
					t.Errorf("command %d %s: %q, but a node says %q", n, quoted(args), got, said)
				}
				continue
			}
			want := w.do(args...)
			p.check(t, n, args, want, got, alike(args, want, got))
		}
		sameKeys(t, w, v)
	})
}

// sameKeys compares all data.
func sameKeys(t *testing.T, direct, through *wire) {
	t.Helper()
	keys := keysOf(direct)
	if got := keysOf(through); len(got) != len(keys) {
		t.Errorf("%d keys, want %d", len(got), len(keys))
	}
	for _, key := range keys {
		kind := direct.do("TYPE", key)
		if kind == "+set\r\n" || kind == "+stream\r\n" { // hash tables have secret seeds, and consumers their times
			continue
		}
		if want, got := direct.do("DUMP", key), through.do("DUMP", key); want != got {
			t.Errorf("%s: %s, want %s", key, quoted(got), quoted(want))
		}
	}
}

// Random commands with keys in any slots, in pipelines: what runs is answered as by a Redis alone, and what is refused
// with CROSSSLOT has several keys and is none of those that are split.
func TestClusterSpreadKeys(t *testing.T) {
	tc := testredis.StartCluster(t, 3, 0, alikeConfig...)
	through := startClusterProxy(t, tc)
	protocols(t, func(t *testing.T, proto int) {
		direct := testredis.Start(t, alikeConfig...)
		p := &pair{direct: direct, proxy: through}
		w, g := dial(t, direct.Addr()), newGenerator(seed(t), false)
		v := dial(t, through.Addr())
		if proto == 3 {
			w, v = dial3(t, direct.Addr()), dial3(t, through.Addr())
		}
		v.do("FLUSHALL")
		v.do("SCRIPT", "FLUSH")
		crossed := 0
		for range 30 {
			var commands [][]string
			for range 100 {
				if args := g.next(); !unlikeCluster(args) && !strings.HasPrefix(strings.ToUpper(args[0]), "FCALL") {
					commands = append(commands, args)
				}
			}
			got := v.pipeline(encodeAll(commands), len(commands))
			for i, args := range commands {
				if strings.HasPrefix(got[i], "-CROSSSLOT ") {
					crossed++
					if name := strings.ToUpper(args[0]); strings.Contains(" MGET MSET DEL UNLINK EXISTS TOUCH ", " "+name+" ") {
						t.Errorf("%s was not split", quoted(args))
					}
					continue
				}
				if strings.HasPrefix(got[i], "-NOSCRIPT ") || strings.Contains(got[i], "non local key") {
					continue // it has run at another node only; or it names keys it did not say
				}
				want := w.do(args...)
				p.check(t, i, args, want, got[i], alike(args, want, got[i]))
			}
		}
		sameKeys(t, w, v)
		if crossed == 0 {
			t.Error("nothing was refused: were keys spread at all?")
		}
		t.Log(crossed, "refused as CROSSSLOT")
	})
}

// What concerns all of the cluster, and what is not there.
func TestClusterWhole(t *testing.T) {
	tc := testredis.StartCluster(t, 3, 0)
	p := startClusterProxy(t, tc)
	w := dial(t, p.Addr())
	var mset []string
	for i := range 300 {
		mset = append(mset, fmt.Sprint("k", i), "v")
	}
	expect(t, w, "+OK\r\n", append([]string{"MSET"}, mset...)...)
	expect(t, w, ":300\r\n", "DBSIZE")
	if _, keys := split(w.do("KEYS", "k*")); len(keys) != 300 {
		t.Errorf("KEYS: %d", len(keys))
	}
	seen := map[string]bool{}
	for cursor := "0"; ; {
		_, parts := split(w.do("SCAN", cursor, "COUNT", "20"))
		_, keys := split(parts[1])
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
		{"LOCK a", "+OK\r\n"}, {"UNLOCK a", ":1\r\n"}, {"FENCED a GET b", "-ERR FENCED is not available with a cluster upstream yet; use LOCK ... FENCE\r\n"},
		{"CLIENT TRACKING ON", "-ERR CLIENT TRACKING is not available with a cluster upstream: lockproxy does not track keys over several nodes\r\n"},
		{"CLIENT TRACKING OFF", "+OK\r\n"}, {"EXEC", "-ERR EXEC without MULTI\r\n"}, {"DISCARD", "-ERR DISCARD without MULTI\r\n"}, {"UNWATCH", "+OK\r\n"},
		{"SHUTDOWN NOSAVE", "-ERR 'SHUTDOWN' is of one node: lockproxy does not send it to a cluster\r\n"},
		{"WAIT 0 100", ":0\r\n"}, {"WAIT 1 50", ":0\r\n"}, {"WAIT x 50", "-ERR value is not an integer or out of range\r\n"}, {"PING", "+PONG\r\n"}, {"CLIENT PAUSE 0", "+OK\r\n"}, {"CLIENT UNPAUSE", "+OK\r\n"},
		{"SCRIPT KILL", "-NOTBUSY No scripts in execution right now.\r\n"}, {"RENAME k1 k2", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"},
		{"SORT k1 BY nosort STORE k2", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"}, {"NOSUCH x", "-ERR unknown command 'NOSUCH', with args beginning with: 'x' \r\n"},
		{"XREAD STREAMS k1 k2 0 0", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"}, {"EVAL return{KEYS[1],ARGV[1]} 1 k1 a", "*2\r\n$2\r\nk1\r\n$1\r\na\r\n"},
	} {
		expect(t, w, c.want, strings.Fields(c.cmd)...)
	}
	info := w.do("INFO")
	for _, part := range []string{"redis_mode:standalone", "cluster_enabled:0", "# Lockproxy", "lockproxy_cluster_masters:3"} {
		if !strings.Contains(info, part) {
			t.Errorf("INFO lacks %s", part)
		}
	}
	if hello := w.do("HELLO", "3"); !strings.Contains(hello, "standalone") {
		t.Errorf("HELLO: %q", hello)
	}
	big := strings.Repeat("x", 3<<20)
	for range 3 {
		expect(t, w, "+OK\r\n", "MSET", "big", big, "k1", "v")
		expect(t, w, fmt.Sprintf("*2\r\n$1\r\nv\r\n$%d\r\n%s\r\n", len(big), big), "MGET", "k1", "big")
	}
	expect(t, w, "+OK\r\n", "FLUSHALL")
	expect(t, w, ":0\r\n", "DBSIZE")
}

// Users are Redis' own, at whatever node their commands go to.
func TestClusterUsers(t *testing.T) {
	tc := testredis.StartCluster(t, 3, 0, "--requirepass secret")
	for _, s := range tc.Servers {
		s.Do(t, "ACL", "SETUSER", "reader", "on", ">r", "~*", "&*", "+@read", "+multi", "+exec", "+auth", "+hello", "+ping")
	}
	// What the README says that the service account needs.
	for _, s := range tc.Servers {
		s.Do(t, "ACL", "SETUSER", "service", "on", ">s", "~*", "+cluster|shards", "+cluster|slots", "+cluster|nodes", "+command", "+ping", "+exists")
	}
	p := startProxy(t, "redis-cluster://service:s@"+tc.Servers[0].Addr())
	w := dial(t, p.Addr())
	for _, c := range []struct{ cmd, want string }{
		{"GET a", "-NOAUTH Authentication required.\r\n"}, {"MULTI", "-NOAUTH Authentication required.\r\n"}, {"BLPOP a 1", "-NOAUTH Authentication required.\r\n"},
		{"AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"}, {"AUTH secret", "+OK\r\n"}, {"MSET a 1 b 2 c 3", "+OK\r\n"},
		{"AUTH reader r", "+OK\r\n"}, {"MGET a b c", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n"},
		{"MULTI", "+OK\r\n"}, {"GET a", "+QUEUED\r\n"}, {"EXEC", "*1\r\n$1\r\n1\r\n"},
	} {
		expect(t, w, c.want, strings.Fields(c.cmd)...)
	}
	for _, cmd := range []string{"SET a 2", "MSET a 1 b 2", "BLPOP a 1", "WATCH a", "FLUSHALL", "SUBSCRIBE x"} {
		if got := w.do(strings.Fields(cmd)...); !strings.HasPrefix(got, "-NOPERM ") {
			t.Errorf("%s: %q", cmd, got)
		}
	}
	if got := w.do("HELLO", "3", "AUTH", "default", "secret"); !strings.HasPrefix(got, "%") {
		t.Errorf("HELLO: %q", got)
	}
	expect(t, w, "+OK\r\n", "SET", "a", "2")
	expect(t, w, "+RESET\r\n", "RESET")
	expect(t, w, "-NOAUTH Authentication required.\r\n", "GET", "a")
}

// A cluster that is not there yet is waited for.
func TestClusterComesLater(t *testing.T) {
	tc := testredis.StartCluster(t, 3, 0)
	for _, s := range tc.Servers {
		s.Stop()
	}
	later := time.AfterFunc(3*time.Second, func() {
		for _, s := range tc.Servers {
			s.Cont()
		}
	})
	defer later.Stop()
	p := startClusterProxy(t, tc)
	w := dial(t, p.Addr())
	eventually(t, "a write", func() bool { return w.do("SET", "a", "1") == "+OK\r\n" })
	if !strings.Contains(p.Log(), "the cluster is not there yet") {
		t.Error("it did not wait")
	}
}
