package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// INFO is of all masters together, and of those that are left when one has gone; LOCKPROXY NODES says of each how it is.
func TestClusterInfo(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc, "--operators", "default")
	harness.Protocols(t, func(t *testing.T, proto int) {
		w := harness.Dial(t, p.Addr())
		if proto == 3 {
			w = harness.Dial3(t, p.Addr())
		}
		w.Do("FLUSHALL")
		for i := range 60 {
			harness.Expect(t, w, "+OK\r\n", "SET", fmt.Sprint("k", i), "v", "EX", "1000")
		}
		holds(t, w, "db0:keys=60,expires=60,avg_ttl=", "INFO", "keyspace")
		for i := range 6 { // at all masters
			harness.Dial(t, p.Addr()).Send("BLPOP", fmt.Sprint("none", i), "0")
		}
		harness.Eventually(t, "6 clients wait", func() bool { return strings.Contains(w.Do("INFO", "clients"), "\r\nblocked_clients:6\r\n") })
		for i := range 6 {
			harness.Expect(t, w, ":1\r\n", "RPUSH", fmt.Sprint("none", i), "v")
		}
		harness.Eventually(t, "nobody waits", func() bool { return strings.Contains(w.Do("INFO", "clients"), "\r\nblocked_clients:0\r\n") })
		all := w.Do("INFO", "everything")
		for _, section := range []string{"Server", "Clients", "Memory", "Stats", "Commandstats", "Keyspace", "Lockproxy"} {
			if n := strings.Count(all, "# "+section+"\r\n"); n != 1 {
				t.Errorf("section %s is there %d times", section, n)
			}
		}
		holds(t, w, "calls=6,", "INFO", "commandstats")
		harness.Expect(t, w, "-ERR syntax error\r\n", "SORT_RO", "none", "STORE", "b")
		w.Do("CONFIG", "RESETSTAT")
	})
	w := harness.Dial(t, p.Addr())
	nodes := func() map[string]map[string]any {
		all := map[string]map[string]any{}
		for _, n := range harness.Objects(t, harness.Decode(t, w.Do("LOCKPROXY", "NODES"))) {
			all[n["name"].(string)] = n
		}
		return all
	}
	slots := int64(0)
	harness.Eventually(t, "all answer in time", func() bool { // which a busy machine may not let them
		up := 0
		slots = 0
		for _, n := range nodes() {
			if slots += n["slots"].(int64); n["state"] == "up" && n["role"] == "master" && len(n["id"].(string)) == 40 {
				up++
			}
		}
		return up == 3
	})
	if slots != 16384 {
		t.Errorf("they have %d slots", slots)
	}
	tc.Servers[1].Kill()
	harness.Eventually(t, "a node that has gone is down, or no node any more", func() bool {
		n, known := nodes()[tc.Servers[1].Addr()]
		return !known || n["state"] == "down" && n["trouble"] != ""
	})
	holds(t, w, "# Server\r\n", "INFO")
	holds(t, w, "lockproxy_cluster_masters:", "INFO")
}

// CLIENT PAUSE is for all masters, and while it has writes wait, nobody's reads wait behind them.
func TestClusterPause(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	w := harness.Dial(t, p.Addr())
	for range 3 {
		harness.Expect(t, w, "+OK\r\n", "CLIENT", "PAUSE", "600000", "WRITE")
		var writers []*harness.Wire
		for i := range 6 { // at all masters
			writer := harness.Dial(t, p.Addr())
			writer.Send("SET", fmt.Sprint("k", i), "v")
			writers = append(writers, writer)
		}
		harness.Eventually(t, "a master's writes wait", func() bool {
			_, rest, _ := strings.Cut(w.Do("INFO", "clients"), "\r\nblocked_clients:")
			waiting, _, _ := strings.Cut(rest, "\r\n")
			n, err := strconv.Atoi(waiting)
			return err == nil && n >= 1
		})
		for i := range 6 {
			w.Do("GET", fmt.Sprint("k", i))
		}
		harness.Expect(t, w, "+OK\r\n", "CLIENT", "UNPAUSE")
		for _, writer := range writers {
			if got := writer.Read(); got != "+OK\r\n" {
				t.Errorf("a write that waited: %q", got)
			}
			writer.Close()
		}
		for i := range 6 {
			harness.Expect(t, w, "+OK\r\n", "SET", fmt.Sprint("k", i), "v")
		}
	}
}

// FUNCTION STATS tells of the function that runs, at whatever master.
func TestClusterFunctionStats(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, "--busy-reply-threshold 100")
	p := harness.StartClusterProxy(t, tc)
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "$1\r\nl\r\n", "FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('endless', function() while true do end end)")
	for i := range 3 {
		runs := harness.Dial(t, p.Addr())
		runs.Send("FCALL", "endless", "1", fmt.Sprint("k", i))
		harness.Eventually(t, "the function is seen", func() bool { return strings.Contains(w.Do("FUNCTION", "STATS"), "endless") })
		harness.Eventually(t, "SCRIPT KILL is told what runs", func() bool { return strings.HasPrefix(w.Do("SCRIPT", "KILL"), "-BUSY ") })
		harness.Eventually(t, "it is ended", func() bool { return w.Do("FUNCTION", "KILL") == "+OK\r\n" })
		if got := runs.Read(); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("an endless function: %q", got)
		}
		harness.Eventually(t, "nothing runs", func() bool { return !strings.Contains(w.Do("FUNCTION", "STATS"), "endless") })
	}
}

// holds says that a reply has part.
func holds(t *testing.T, w *harness.Wire, part string, args ...string) {
	t.Helper()
	if got := w.Do(args...); !strings.Contains(got, part) {
		t.Errorf("%v has no %q:\n%s", args, part, got)
	}
}

// Of a cluster, too, LOCKINFO names the machine of the proxy that serves a holder.
func TestClusterLockInfoNamesTheProxy(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	a, b := harness.StartClusterProxy(t, tc), harness.StartClusterProxy(t, tc)
	holder, asker := harness.Dial(t, a.Addr()), harness.Dial(t, b.Addr())
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
	host, _ := os.Hostname()
	holders := harness.Objects(t, harness.Object(t, harness.Decode(t, asker.Do("LOCKINFO", "k")))["holders"])
	if len(holders) != 1 || holders[0]["proxy"] != host {
		t.Errorf("%v, not %s", holders, host)
	}
}

// What a client sends counts as forwarded once, whatever it is, with a cluster as with one Redis; also what is sent again to another node.
func TestForwardedCommandsAreCounted(t *testing.T) {
	t.Parallel()
	one := harness.StartProxy(t, testredis.Start(t).URL())
	many := harness.StartClusterProxy(t, testredis.StartCluster(t, 3, 0))
	for name, commands := range map[string][][]string{
		"plain":         {{"SET", "{a}1", "v"}, {"GET", "{a}1"}},
		"transaction":   {{"MULTI"}, {"SET", "{a}1", "v"}, {"SET", "{a}2", "v"}, {"EXEC"}},
		"elsewhere":     {{"MULTI"}, {"PING"}, {"SET", "{b}1", "v"}, {"EXEC"}, {"MULTI"}, {"SET", "{c}1", "v"}, {"EXEC"}, {"MULTI"}, {"SET", "{a}1", "v"}, {"EXEC"}},
		"answered here": {{"MULTI"}, {"CLIENT", "SETNAME", "n"}, {"ECHO", "e"}, {"EXEC"}},
		"discarded":     {{"MULTI"}, {"SET", "{a}1", "v"}, {"MULTI"}, {"WATCH", "{a}1"}, {"DISCARD"}},
		"watched":       {{"WATCH", "{a}1"}, {"GET", "{a}1"}, {"MULTI"}, {"SET", "{a}1", "v"}, {"EXEC"}, {"WATCH", "{a}1"}, {"UNWATCH"}},
		"blocking":      {{"RPUSH", "{a}list", "x"}, {"BLPOP", "{a}list", "0"}, {"BLPOP", "{a}list", "0.01"}},
		"subscriptions": {{"SUBSCRIBE", "one"}, {"PSUBSCRIBE", "t*"}, {"PING"}, {"UNSUBSCRIBE", "one"}, {"PUNSUBSCRIBE", "t*"}},
	} {
		for kind, p := range map[string]*harness.Proxy{"one Redis": one, "a cluster": many} {
			w := harness.Dial(t, p.Addr())
			before := p.Metric("lockproxy_commands_forwarded_total")
			for _, words := range commands {
				w.Do(words...)
			}
			if got := p.Metric("lockproxy_commands_forwarded_total") - before; got != float64(len(commands)) {
				t.Errorf("%s, %s: %v commands, want %d", name, kind, got, len(commands))
			}
			w.Close()
		}
	}
}
