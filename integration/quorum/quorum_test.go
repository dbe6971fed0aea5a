package quorum

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// quorumFlags are those of a proxy before nodes.
func quorumFlags(nodes []*testredis.Server) []string {
	flags := slices.Clone(quorumTimes)
	for _, n := range nodes {
		flags = append(flags, "--quorum", n.URL())
	}
	return flags
}

func onNodes(t *testing.T, nodes []*testredis.Server, key string) (n int) {
	t.Helper()
	for _, s := range nodes {
		n += int(s.Do(t, "EXISTS", key).(int64))
	}
	return n
}

func TestQuorum(t *testing.T) {
	t.Parallel()
	data, nodes := testredis.Start(t), harness.StartNodes(t, 5)
	// They are young for long enough that a busy machine finds them so, once the proxy is there: its start may take longer.
	p := harness.StartProxy(t, data.URL(), append(quorumFlags(nodes), "--quorum-max-lease", "10s", "--lock-watchdog-timeout", "10s", "--operators", "default")...)
	w := harness.Dial(t, p.Addr())
	for _, n := range nodes {
		n.Restart()
	}
	wants(t, w, "-NOQUORUM 0 of 5 nodes count, 3 are needed: the lock was not taken; 5 were started, or their clocks set, "+
		"too recently, and enough nodes count in ", "LOCK", "k")
	if got := w.Do("INFO", "lockproxy"); !strings.Contains(got, "lockproxy_quorum_node4:name=redis://"+nodes[4].Addr()+",state=young,") {
		t.Fatal(got)
	}
	harness.Eventually(t, "the nodes count", func() bool { return w.Do("LOCK", "k") == "+OK\r\n" })
	harness.Eventually(t, "all of them", func() bool { return onNodes(t, nodes, "k") == 5 })
	if got := w.Do("SET", "d", "1"); got != "+OK\r\n" || data.Do(t, "EXISTS", "d", "k").(int64) != 1 || onNodes(t, nodes, "d") != 0 {
		t.Fatal("what belongs where:", got)
	}
	for command, want := range map[string]string{
		"LOCK x EX 11":            "-ERR the lease is longer than the 10000 ms of quorum-max-lease\r\n",
		"LOCK x REPLICAS 1":       "-ERR REPLICAS is not supported with --quorum: its nodes are independent masters\r\n",
		"FENCED k GET d":          "-ERR FENCED is not supported with --quorum: the lock is not where the data is; use LOCK ... FENCE\r\n",
		"LOCKLIST SCAN 0":         "-ERR LOCKLIST SCAN is not available with --quorum: ",
		"LOCK k":                  "+OK\r\n", // once more
		"FAIRLOCK f PX 9000":      "+OK\r\n",
		"RLOCK r":                 "+OK\r\n",
		"WLOCK w FENCE":           ":",
		"MULTILOCK 2 m1 m2":       "+OK\r\n",
		"LOCK o OWNER me PX 7900": "+OK\r\n",
	} {
		wants(t, w, want, strings.Fields(command)...)
	}
	wants(t, w, "+OK\r\n", "LOCK", "o", "OWNER", "me", "PX", "7900")
	wants(t, w, ":1\r\n", "UNLOCK", "o", "OWNER", "me")
	harness.Eventually(t, "k is on each of them", func() bool { return onNodes(t, nodes, "k") == 5 })
	nodes[1].Kill()
	harness.Eventually(t, "it is seen", func() bool { return strings.Contains(w.Do("INFO", "lockproxy"), nodes[1].Addr()+",state=down,") })
	harness.Eventually(t, "/metrics counts it", func() bool { return p.Metric(`lockproxy_quorum_nodes{state="down"}`) == 1 })
	harness.Eventually(t, "LOCKPROXY NODES says so, too", func() bool { // the others may be late on a busy machine
		all := harness.Objects(t, harness.Decode(t, w.Do("LOCKPROXY", "NODES")))
		return len(all) == 6 && all[0]["role"] == "master" && all[2]["role"] == "quorum" && all[2]["name"] == "redis://"+nodes[1].Addr() && all[2]["state"] == "down" && all[2]["trouble"] != ""
	})
	harness.Eventually(t, "LOCKINFO has it on four, and says what is wrong with the fifth", func() bool { // one more may be late on a busy machine
		in := harness.Object(t, harness.Decode(t, w.Do("LOCKINFO", "k")))
		held, down := 0, ""
		for _, n := range harness.Objects(t, in["nodes"]) {
			switch n["state"] {
			case "up":
				if n["kind"] == "plain" && len(n["owners"].([]any)) == 1 {
					held++
				}
			case "down":
				if down += fmt.Sprint(n["name"]); n["trouble"] == "" {
					t.Errorf("%v", n)
				}
			}
		}
		holders := harness.Objects(t, in["holders"])
		return in["kind"] == "plain" && held == 4 && down == "redis://"+nodes[1].Addr() && len(holders) == 1 && fmt.Sprint(holders[0]["holds"]) == "2"
	})
	nodes[1].Restart()
	harness.Eventually(t, "it is too young", func() bool { return strings.Contains(w.Do("INFO", "lockproxy"), nodes[1].Addr()+",state=young,") })
	harness.Eventually(t, "it counts again", func() bool { return strings.Contains(w.Do("INFO", "lockproxy"), nodes[1].Addr()+",state=up,") })
	wants(t, w, ":1\r\n", "UNLOCK", "k", "ALL")
	wants(t, w, ":1\r\n", "UNLOCK", "r")
	frees(t, w, ":2\r\n", "MULTIUNLOCK", "2", "m1", "m2")
	harness.Eventually(t, "free everywhere", func() bool { return onNodes(t, nodes, "k") == 0 })
}

// A client that is killed frees its lock on all nodes at once.
func TestQuorumClientKilled(t *testing.T) {
	t.Parallel()
	data, nodes := testredis.Start(t), harness.StartNodes(t, 3)
	flags := quorumFlags(nodes)
	p := harness.StartProxy(t, data.URL(), flags...)
	w := harness.Dial(t, p.Addr())
	harness.Eventually(t, "the nodes count", func() bool { return w.Do("LOCK", "warm") == "+OK\r\n" })
	cli := exec.Command("redis-cli", "-p", strconv.Itoa(p.Port()))
	in, err := cli.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c := testredis.StartChild(t, cli)
	var asked time.Time
	harness.Eventually(t, "it has the lock", func() bool {
		if onNodes(t, nodes, "k") == 3 {
			return true
		}
		if time.Since(asked) > time.Second { // on a busy machine the nodes may be too late to be a majority, or to renew
			asked = time.Now()
			if _, err := in.Write([]byte("LOCK k\n")); err != nil {
				t.Fatal(err)
			}
		}
		return false
	})
	c.Kill()
	killed := time.Now()
	harness.Eventually(t, "it is free", func() bool { return onNodes(t, nodes, "k") == 0 })
	t.Logf("free on all nodes %v after the kill", time.Since(killed))
	wants(t, w, "+OK", "LOCK", "k")
}

// Twenty clients on two proxies count by GET and SET, two nodes of five being down.
func TestQuorumExclusion(t *testing.T) {
	t.Parallel()
	data, nodes := testredis.Start(t), harness.StartNodes(t, 5)
	proxies := []*harness.Proxy{harness.StartProxy(t, data.URL(), quorumFlags(nodes)...), harness.StartProxy(t, data.URL(), quorumFlags(nodes)...)}
	for _, p := range proxies {
		w := harness.Dial(t, p.Addr())
		harness.Eventually(t, "all nodes count", func() bool {
			return w.Do("LOCK", "warm") == ok && strings.Count(w.Do("INFO", "lockproxy"), ",state=up,") == 5
		})
		wants(t, w, yes, "UNLOCK", "warm", "ALL")
		w.Close()
	}
	nodes[0].Kill()
	nodes[3].Stop()
	const clients, times = 20, 10
	harness.Together(clients, func(i int) {
		w := harness.Dial(t, proxies[i%2].Addr())
		for range times {
			got, err := w.TryQuorum("LOCK", "counter", "BLOCK", "0")
			if err != nil || got != "+OK\r\n" {
				t.Errorf("%q %v", got, err)
				return
			}
			old, _ := w.Try("GET", "n")
			n := 0
			if _, text, ok := strings.Cut(old, "\r\n"); ok {
				n, _ = strconv.Atoi(strings.TrimSpace(text))
			}
			if got, err := w.Try("SET", "n", strconv.Itoa(n+1)); err != nil || got != "+OK\r\n" {
				t.Errorf("%q %v", got, err)
			}
			if got, err := w.TryQuorum("UNLOCK", "counter"); err != nil || got != ":1\r\n" {
				t.Errorf("%q %v", got, err)
			}
		}
	})
	nodes[3].Cont()
	if got, _ := data.Do(t, "GET", "n").([]byte); string(got) != strconv.Itoa(clients*times) {
		t.Errorf("%s", got)
	}
}

// Without the Redis that has the data, who is connected already locks on; nobody new can be asked for there.
func TestQuorumWithoutItsUpstream(t *testing.T) {
	t.Parallel()
	data, nodes := testredis.Start(t), harness.StartNodes(t, 3)
	p := harness.StartProxy(t, data.URL(), quorumFlags(nodes)...)
	w := harness.Dial(t, p.Addr())
	harness.Eventually(t, "the nodes count", func() bool { return w.Do("LOCK", "k") == ok })
	data.Kill()
	wants(t, w, yes, "UNLOCK", "k", "ALL")
	wants(t, w, ok, "LOCK", "other")
	harness.Eventually(t, "a newcomer hears that the data is away", func() bool { // once lockproxy has noticed
		c := harness.Dial(t, p.Addr())
		defer c.Close()
		got, err := c.Try("LOCK", "k")
		return err == nil && strings.HasPrefix(got, "-ERR upstream unavailable")
	})
	wants(t, w, yes, "UNLOCK", "other")
}

// An UNLOCK of a connection's own lock asks nobody for a right: it is done by the nodes while --upstream is away.
func TestQuorumUnlockNeedsNoUpstream(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	w := harness.Dial(t, q.p.Addr())
	for _, verb := range []string{"LOCK", "RLOCK", "WLOCK"} {
		wants(t, w, "+OK", verb, verb+"ed")
	}
	q.data.Kill()
	for _, verb := range []string{"LOCK", "RLOCK", "WLOCK"} {
		wants(t, w, ":1", "UNLOCK", verb+"ed")
	}
	harness.Eventually(t, "no node has one of them", func() bool {
		return len(q.holding("LOCKed"))+len(q.holding("RLOCKed"))+len(q.holding("WLOCKed")) == 0
	})
}

// lockproxy run says before its command begins that --at-least is longer than a lease of the quorum.
func TestQuorumRunForTooLong(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	run := exec.Command(harness.Binary(t), "run", "--lock", "job", "--address", q.p.Addr(), "--wait", "0", "--lease", "2s", "--at-least", "1m", "--", "echo", "begun")
	said, err := run.CombinedOutput()
	if code := run.ProcessState.ExitCode(); code != 125 || !strings.Contains(string(said), "max-lease") || strings.Contains(string(said), "begun") {
		t.Errorf("exit code %d, %v: %s", code, err, said)
	}
}
