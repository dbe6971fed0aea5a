package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A transaction is Redis' own, at whatever node its keys are, whether its commands come at once or one by one.
func TestClusterTransactions(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	harness.Protocols(t, func(t *testing.T, proto int) {
		w, other := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
		if proto == 3 {
			w = harness.Dial3(t, p.Addr())
		}
		null := map[int]string{2: "*-1\r\n", 3: "_\r\n"}[proto]
		const crossed = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
		w.Do("FLUSHALL")
		for i := range 40 {
			a, b := fmt.Sprintf("{x%d}a", i), fmt.Sprintf("{x%d}b", i)
			tx := [][]string{{"MULTI"}, {"PING"}, {"SET", a, "1"}, {"INCR", b}, {"GET", a}, {"EXEC"}}
			want := []string{"+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*4\r\n+PONG\r\n+OK\r\n:1\r\n$1\r\n1\r\n"}
			if i%2 == 0 {
				for k, got := range w.Pipeline(harness.EncodeAll(tx), len(tx)) {
					if got != want[k] {
						t.Fatalf("%v: %q", tx[k], got)
					}
				}
				continue
			}
			for k, args := range tx {
				harness.Expect(t, w, want[k], args...)
			}
		}
		for i := range 12 { // at all nodes
			key := fmt.Sprintf("{w%d}", i)
			for _, c := range []struct{ cmd, want string }{
				{"WATCH " + key + "1 " + key + "2", "+OK\r\n"}, {"GET elsewhere", w.Do("GET", "nope")}, {"MULTI", "+OK\r\n"}, {"SET " + key + "1 a", "+QUEUED\r\n"}, {"EXEC", "*1\r\n+OK\r\n"},
				{"MULTI", "+OK\r\n"}, {"SET " + key + "1 a b c", "+QUEUED\r\n"}, {"EXEC", "*1\r\n-ERR syntax error\r\n"},
				{"MULTI", "+OK\r\n"}, {"GET", "-ERR wrong number of arguments for 'get' command\r\n"}, {"SET " + key + "1 b", "+QUEUED\r\n"}, {"EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"},
				{"MULTI", "+OK\r\n"}, {"SET " + key + "1 c", "+QUEUED\r\n"}, {"DISCARD", "+OK\r\n"}, {"GET " + key + "1", "$1\r\na\r\n"},
				{"MULTI", "+OK\r\n"}, {"SET " + key + "1 d", "+QUEUED\r\n"}, {"SET elsewhere d", crossed}, {"EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"}, {"GET " + key + "1", "$1\r\na\r\n"},
				{"MULTI", "+OK\r\n"}, {"MULTI", nestedMulti()}, {"MGET a b c", crossed}, {"EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"},
				{"WATCH " + key + "1 elsewhere", crossed}, {"WATCH " + key + "1", "+OK\r\n"}, {"WATCH elsewhere", crossed}, {"UNWATCH", "+OK\r\n"}, {"WATCH elsewhere", "+OK\r\n"}, {"UNWATCH", "+OK\r\n"},
				{"MULTI x", "-ERR wrong number of arguments for 'multi' command\r\n"}, {"PING", "+PONG\r\n"},
				{"MULTI", "+OK\r\n"}, {"EXEC", "*0\r\n"}, {"MULTI", "+OK\r\n"}, {"CLUSTER SLOTS", "-ERR Command not allowed inside a transaction\r\n"}, {"EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"},
				{"MULTI", "+OK\r\n"}, {"BLPOP " + key + "none 0", "+QUEUED\r\n"}, {"EXEC", "*1\r\n" + null}, {"EXEC", "-ERR EXEC without MULTI\r\n"},
			} {
				if got := w.Do(strings.Fields(c.cmd)...); got != c.want {
					t.Errorf("%s: %q, want %q", c.cmd, got, c.want)
				}
			}
			harness.Expect(t, w, "+OK\r\n", "WATCH", key+"1")
			harness.Expect(t, other, "+OK\r\n", "SET", key+"1", "changed")
			harness.Expect(t, w, "+OK\r\n", "MULTI")
			harness.Expect(t, w, "+QUEUED\r\n", "SET", key+"1", "e")
			harness.Expect(t, w, null, "EXEC")
		}
	})
}

// While slots move, no transaction is done by half, each runs or is aborted, and no change of a watched key goes unseen.
func TestClusterTransactionsWhileSlotsMove(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	const workers = 4
	conns, stop, finished := make([]*harness.Wire, workers), make(chan struct{}), make(chan struct{})
	for i := range conns {
		conns[i] = harness.Dial(t, p.Addr())
	}
	var rounds atomic.Int64
	go func() {
		defer close(finished)
		harness.Together(workers, func(i int) {
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := transactAndIncrement(conns[i], fmt.Sprintf("{m}%d:", i), n); err != nil {
					t.Error(err)
					return
				}
				rounds.Add(1)
			}
		})
	}()
	for range 25 {
		moveElsewhere(t, tc, slots.Slot([]byte("{m}")))
	}
	close(stop)
	<-finished
	want := fmt.Sprint(rounds.Load())
	harness.Expect(t, conns[0], fmt.Sprintf("$%d\r\n%s\r\n", len(want), want), "GET", "{m}shared")
	if t.Logf("%s rounds", want); rounds.Load() < workers {
		t.Error("there was no load")
	}
}

// transactAndIncrement does for the n-th time what must go up by one each time.
func transactAndIncrement(w *harness.Wire, mine string, n int) error {
	pipe := [][]string{{"MULTI"}, {"INCR", mine + "a"}, {"INCR", mine + "b"}, {"EXEC"}}
	want := fmt.Sprintf("*2\r\n:%d\r\n:%d\r\n", n, n)
	for {
		switch got, err := w.TryPipeline(pipe); {
		case err == nil && got[3] == want:
			return increment(w, "{m}shared")
		case err != nil, !strings.HasPrefix(got[3], "-EXECABORT "):
			return fmt.Errorf("EXEC: %q %v, want %q", got, err, want)
		}
	}
}

// moveElsewhere migrates a slot, once all nodes agree about the last time: one that is taken over by a node that has not
// heard of all config epochs can end up with nobody.
func moveElsewhere(t *testing.T, tc *testredis.Cluster, slot int) (to *testredis.Server) {
	t.Helper()
	harness.Eventually(t, "all agree", func() bool {
		views := map[string]bool{}
		for _, s := range tc.Servers {
			var view []string
			for line := range strings.Lines(fmt.Sprintf("%s", s.Do(t, "CLUSTER", "NODES"))) {
				f := strings.Fields(line)
				view = append(view, f[0]+" "+f[6]+" "+strings.Join(f[8:], " "))
			}
			slices.Sort(view)
			views[strings.Join(view, ";")] = true
		}
		return len(views) == 1
	})
	from, err := tc.Owner(slot)
	if err != nil || from == nil {
		t.Fatal("nobody has the slot: ", err)
	}
	if to = tc.Servers[0]; from == to {
		to = tc.Servers[1]
	}
	if err := tc.MoveSlot(slot, from, to); err != nil {
		t.Fatal(err)
	}
	return to
}

// increment adds one to key by WATCH, GET, MULTI, SET and EXEC until that has worked.
func increment(w *harness.Wire, key string) error {
	for range 1000 {
		if got, err := w.Try("WATCH", key); err != nil || got != "+OK\r\n" {
			return fmt.Errorf("WATCH: %q %v", got, err)
		}
		got, err := w.Try("GET", key)
		if err != nil || harness.IsErrorFrame(got) {
			return fmt.Errorf("GET: %q %v", got, err)
		}
		n := 0
		if got != "$-1\r\n" {
			_, _ = fmt.Sscan(strings.Split(got, "\r\n")[1], &n)
		}
		replies, err := w.TryPipeline([][]string{{"MULTI"}, {"SET", key, fmt.Sprint(n + 1)}, {"EXEC"}})
		switch {
		case err != nil:
			return err
		case replies[2] == "*1\r\n+OK\r\n":
			return nil
		case replies[2] != "*-1\r\n" && !strings.HasPrefix(replies[2], "-EXECABORT "):
			return fmt.Errorf("EXEC: %q", replies)
		}
	}
	return fmt.Errorf("%s changes all the time", key)
}

// Who waits for an element waits on when the slot moves.
func TestClusterBlockingWhileSlotsMove(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	pusher := harness.Dial(t, p.Addr())
	for _, c := range []struct{ wait, push, want string }{
		{"BLPOP {b}l 0", "RPUSH {b}l v", "*2\r\n$4\r\n{b}l\r\n$1\r\nv\r\n"},
		{"BLMOVE {b}l {b}r LEFT RIGHT 60", "RPUSH {b}l v", "$1\r\nv\r\n"},
		{"BZPOPMIN {b}z 60.5", "ZADD {b}z 1 v", "*3\r\n$4\r\n{b}z\r\n$1\r\nv\r\n$1\r\n1\r\n"},
		{"BLMPOP 0 1 {b}l LEFT", "RPUSH {b}l v", "*2\r\n$4\r\n{b}l\r\n*1\r\n$1\r\nv\r\n"},
		{"XREAD BLOCK 60000 STREAMS {b}x $", "XADD {b}x 5-1 a b", "*1\r\n*2\r\n$4\r\n{b}x\r\n*1\r\n*2\r\n$3\r\n5-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"},
	} {
		w := harness.Dial(t, p.Addr())
		id := strings.Trim(w.Do("CLIENT", "ID"), ":\r\n")
		w.Send(strings.Fields(c.wait)...)
		blocked := func() bool { return strings.Contains(pusher.Do("CLIENT", "LIST", "ID", id), "flags=b") }
		harness.Eventually(t, "it waits", blocked)
		slot := slots.Slot([]byte("{b}"))
		for range 2 {
			to := moveElsewhere(t, tc, slot)
			harness.Eventually(t, "it waits at the new node", func() bool {
				return strings.Contains(fmt.Sprintf("%s", to.Do(t, "INFO", "clients")), "blocked_clients:1")
			})
		}
		pusher.Do(strings.Fields(c.push)...)
		if got := w.Read(); got != c.want {
			t.Errorf("%s: %q, want %q", c.wait, got, c.want)
		}
		harness.Expect(t, w, "+PONG\r\n", "PING")
	}
	w := harness.Dial(t, p.Addr())
	to := moveElsewhere(t, tc, slots.Slot([]byte("{b}")))
	// CLIENT UNBLOCK finds the node.
	id := strings.Trim(w.Do("CLIENT", "ID"), ":\r\n")
	waiting := func(n int) func() bool {
		return func() bool {
			return strings.Contains(fmt.Sprintf("%s", to.Do(t, "INFO", "clients")), fmt.Sprint("blocked_clients:", n))
		}
	}
	w.Send("BLPOP", "{b}none", "0") // a redirect may send it on, and meanwhile Redis has nobody to unblock
	harness.Eventually(t, "it waits", waiting(1))
	harness.Expect(t, pusher, ":1\r\n", "CLIENT", "UNBLOCK", id)
	if got := w.Read(); got != "*-1\r\n" {
		t.Errorf("got %q", got)
	}
	harness.Expect(t, w, "-CROSSSLOT Keys in request don't hash to the same slot\r\n", "BLPOP", "a", "b", "1")
	w.Send("BLPOP", "{b}none", "0") // a client that goes away leaves nobody waiting
	harness.Eventually(t, "it waits", waiting(1))
	w.Close()
	harness.Eventually(t, "it waits no more", waiting(0))
}

// Messages reach all, wherever they are published and wherever their subscribers are.
func TestClusterPubSub(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	publisher := harness.Dial(t, p.Addr())
	const n = 6 // on several nodes
	subs := make([]*harness.Wire, n)
	for i := range subs {
		if subs[i] = harness.Dial(t, p.Addr()); i%2 == 0 {
			subs[i] = harness.Dial3(t, p.Addr())
		}
		subs[i].Send("SUBSCRIBE", "news", "more")
		subs[i].Read()
		subs[i].Read()
	}
	harness.Expect(t, publisher, fmt.Sprintf("*4\r\n$4\r\nnews\r\n:%d\r\n$4\r\nnone\r\n:0\r\n", n), "PUBSUB", "NUMSUB", "news", "none")
	if _, names := harness.Split(publisher.Do("PUBSUB", "CHANNELS", "n*")); len(names) != 1 {
		t.Errorf("CHANNELS: %q", names)
	}
	for i := range 20 {
		publisher.Do("PUBLISH", "news", fmt.Sprint(i))
		tc.Servers[i%3].Do(t, "PUBLISH", "news", fmt.Sprint(i, "direct"))
		for k, w := range subs {
			got := w.Read() + w.Read()
			if !strings.Contains(got, fmt.Sprintf("\r\n%d\r\n", i)) || !strings.Contains(got, fmt.Sprint(i, "direct")) {
				t.Fatalf("%d: %q", k, got)
			}
		}
	}
	if got := subs[1].Do("GET", "x"); !strings.HasPrefix(got, "-ERR Can't execute 'get'") {
		t.Errorf("got %q", got)
	}
	if got := subs[1].Do("PING"); got != "*2\r\n$4\r\npong\r\n$0\r\n\r\n" {
		t.Errorf("got %q", got)
	}
	harness.Expect(t, subs[0], "+OK\r\n", "SET", "x", "1")
	harness.Expect(t, subs[0], "$1\r\n1\r\n", "GET", "x")
	for _, step := range []struct{ cmd, want string }{ // what else needs a connection has another
		{"MULTI", "+OK\r\n"}, {"INCR x", "+QUEUED\r\n"}, {"EXEC", "*1\r\n:2\r\n"}, {"WATCH x", "+OK\r\n"}, {"UNWATCH", "+OK\r\n"}, {"BLPOP none 0.01", "_\r\n"},
	} {
		harness.Expect(t, subs[0], step.want, strings.Fields(step.cmd)...)
	}
	for i := range 6 {
		w, channel := harness.Dial(t, p.Addr()), fmt.Sprint("shard", i)
		if got := w.Do("SSUBSCRIBE", channel); !strings.HasPrefix(got, "*3\r\n$10\r\nssubscribe") {
			t.Fatalf("got %q", got)
		}
		harness.Expect(t, publisher, ":1\r\n", "SPUBLISH", channel, "hi")
		if got := w.Read(); !strings.Contains(got, "smessage") {
			t.Errorf("got %q", got)
		}
		harness.Expect(t, publisher, fmt.Sprintf("*2\r\n$6\r\n%s\r\n:1\r\n", channel), "PUBSUB", "SHARDNUMSUB", channel)
		if got := w.Do("SUNSUBSCRIBE", channel); !strings.Contains(got, "sunsubscribe") {
			t.Errorf("got %q", got)
		}
		harness.Expect(t, w, "+PONG\r\n", "PING")
	}
}

// wantNoScript expects that the nodes' own answer to the digest of a script they have not comes through; Valkey's is shorter than Redis'.
func wantNoScript(t *testing.T, w *harness.Wire, sha string) {
	t.Helper()
	if got := w.Do("EVALSHA", sha, "1", "c1", "2"); !strings.HasPrefix(got, "-NOSCRIPT No matching script.") {
		t.Errorf("EVALSHA of a script that was flushed: %q, want NOSCRIPT", got)
	}
}

// Scripts run where their keys are; one that a node has lost is the client's to load again; a slow one holds up no other commands.
func TestClusterScripts(t *testing.T) {
	t.Parallel()
	// A node that listens to nobody for long counts as failed: it is to listen soon.
	tc := testredis.StartCluster(t, 3, 0, "--lua-time-limit 100")
	p := harness.StartClusterProxy(t, tc)
	w, other := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	const body = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
	sha := ""
	for round := range 3 {
		sha = strings.Split(w.Do("SCRIPT", "LOAD", body), "\r\n")[1] // at all masters
		for i := range 12 {
			harness.Expect(t, w, fmt.Sprintf(":%d\r\n", 2*round+2), "EVALSHA", sha, "1", fmt.Sprint("c", i), "2")
		}
		for _, s := range tc.Servers {
			s.Do(t, "SCRIPT", "FLUSH") // behind the proxy's back
		}
		wantNoScript(t, w, sha)
	}
	harness.Expect(t, w, "*1\r\n:0\r\n", "SCRIPT", "EXISTS", sha)
	harness.Expect(t, w, "+OK\r\n", "SCRIPT", "FLUSH")
	wantNoScript(t, w, sha)
	w.Send("EVAL", "while true do end", "1", "slow")
	harness.Eventually(t, "the script is killed", func() bool { return other.Do("SCRIPT", "KILL") == "+OK\r\n" })
	if got := w.Read(); !strings.Contains(got, "killed by user") {
		t.Errorf("got %q", got)
	}
}

// A command that lockproxy bars in a transaction aborts it, also when a key behind it has the transaction begin again at another node.
func TestClusterBarredCommandAborts(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	w := harness.Dial(t, p.Addr())
	for _, s := range tc.Servers {
		key := keyOf(t, tc, s)
		harness.Expect(t, w, ok, "MULTI")
		harness.Expect(t, w, "-ERR Command not allowed inside a transaction\r\n", "LOCK", "x")
		harness.Expect(t, w, "+QUEUED\r\n", "SET", key, "v")
		harness.Expect(t, w, "-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
		harness.Expect(t, w, "$-1\r\n", "GET", key)
	}
}

// nestedMulti is what a MULTI within a transaction is told: a Valkey has the same error for all that cannot be in one.
func nestedMulti() string {
	if testredis.Valkey() {
		return "-ERR Command not allowed inside a transaction\r\n"
	}
	return "-ERR MULTI calls can not be nested\r\n"
}
