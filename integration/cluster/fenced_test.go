package cluster

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// FENCED runs at the node of the lock, whatever else the client has, and refuses what does not belong there.
func TestClusterFenced(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	big := strings.Repeat("x", 3<<20)
	harness.Protocols(t, func(t *testing.T, proto int) {
		w, other := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
		if proto == 3 {
			w = harness.Dial3(t, p.Addr())
			w.Do("SUBSCRIBE", "news") // at any node
		}
		null := map[int]string{2: "$-1\r\n", 3: "_\r\n"}[proto]
		w.Do("FLUSHALL")
		for i := range 12 { // at all nodes
			key := func(name string) string { return fmt.Sprintf("{f%d}%s", i, name) }
			l, n := key("l"), key("n")
			harness.Expect(t, w, "-NOTHELD this owner does not hold '"+l+"'\r\n", "FENCED", l, "INCR", n)
			harness.Expect(t, w, ok, "LOCK", l, "SELF")
			harness.Expect(t, w, ":1\r\n", "FENCED", l, "INCR", n)
			harness.Expect(t, w, null, "FENCED", l, "GET", key("none"))
			harness.Expect(t, w, "+PONG\r\n", "FENCED", l, "PING")
			harness.Expect(t, w, ":8\r\n", "FENCED", l, "EVAL", "return redis.call('INCRBY', KEYS[1], ARGV[1])", "1", n, "7")
			harness.Expect(t, w, "$1\r\n8\r\n", "FENCED", l, "EVAL", "return redis.call('GET', '"+n+"')", "0")
			harness.Expect(t, w, "-ERR my own words\r\n", "FENCED", l, "EVAL", "return redis.error_reply('ERR my own words')", "0")
			harness.Expect(t, w, "-MOVED 1 nowhere:1\r\n", "FENCED", l, "EVAL", "redis.call('INCR', KEYS[1]) return redis.error_reply('MOVED 1 nowhere:1')", "1", n)
			harness.Expect(t, w, "$1\r\n9\r\n", "GET", n)
			harness.Expect(t, w, "-ERR wrong number of arguments for 'get' command\r\n", "FENCED", l, "GET")
			harness.Expect(t, w, "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", "FENCED", l, "INCR", l)
			if got := w.Do("FENCED", l, "NOSUCH", n); !strings.HasPrefix(got, "-ERR unknown command 'NOSUCH'") {
				t.Errorf("%q", got)
			}
			harness.Expect(t, w, ":0\r\n", "FENCED", l, "SPUBLISH", key("channel"), "hi")
			for _, cmd := range []string{"SET elsewhere 1", "MGET " + n + " elsewhere", "DEL elsewhere", "SPUBLISH elsewhere hi", "EVAL return 1 elsewhere", "MGET a b"} {
				cmd = strings.Replace(cmd, "return 1 ", "return{} 1 ", 1)
				if got := w.Do(append([]string{"FENCED", l}, strings.Fields(cmd)...)...); !strings.HasPrefix(got, "-CROSSSLOT Keys in request don't hash to the same slot: what FENCED runs") {
					t.Errorf("%s: %q", cmd, got)
				}
			}
			for _, cmd := range []string{"FLUSHALL", "DBSIZE", "KEYS *", "SCAN 0", "SCRIPT FLUSH", "PUBSUB CHANNELS", "CONFIG SET maxmemory 0"} {
				if got := w.Do(append([]string{"FENCED", l}, strings.Fields(cmd)...)...); !strings.Contains(got, "cannot be run by FENCED on a cluster: it concerns all nodes") {
					t.Errorf("%s: %q", cmd, got)
				}
			}
			for cmd, why := range map[string]string{"BLPOP " + n + " 0": "it may wait", "WAIT 0 0": "it may wait", "MULTI": "it concerns the connection", "SUBSCRIBE x": "it concerns the connection", "LOCK " + l: "it is a lock verb"} {
				if got := w.Do(append([]string{"FENCED", l}, strings.Fields(cmd)...)...); !strings.Contains(got, "cannot be run by FENCED: "+why) {
					t.Errorf("%s: %q", cmd, got)
				}
			}
			harness.Expect(t, other, "-NOTHELD this owner does not hold '"+l+"'\r\n", "FENCED", l, "INCR", n)
			harness.Expect(t, w, "$1\r\n9\r\n", "GET", n)
		}
		harness.Expect(t, w, ok, "SET", "{f1}big", big)
		harness.Expect(t, w, fmt.Sprintf("$%d\r\n%s\r\n", len(big), big), "FENCED", "{f1}l", "GET", "{f1}big")
		if proto == 3 { // messages go on beside it
			w.Send("FENCED", "{f1}l", "PUBLISH", "news", "hi")
			reply, message := w.Read(), w.Read()
			if strings.HasPrefix(reply, ">") { // they come over two connections from Redis, in either order; the count is of one node's subscribers
				reply, message = message, reply
			}
			if reply != ":1\r\n" && reply != ":0\r\n" || !strings.Contains(message, "message") || !strings.Contains(message, "hi") {
				t.Errorf("%q, %q", reply, message)
			}
			return
		}
		harness.Expect(t, w, ok, "WATCH", "{f2}x")
		harness.Expect(t, w, "$1\r\n9\r\n", "FENCED", "{f1}l", "GET", "{f1}n")
		harness.Expect(t, w, ok, "MULTI")
		harness.Expect(t, w, "-ERR Command not allowed inside a transaction\r\n", "FENCED", "{f1}l", "GET", "{f1}n")
		harness.Expect(t, w, "-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
		w.Do("DEL", "{f1}l")
		if got := w.Do("FENCED", "{f1}l", "GET", "{f1}n"); !strings.HasPrefix(got, "-LOCKLOST ") {
			t.Errorf("%q", got)
		}
	})
}

// A slot that is half-way: what FENCED runs is run where the lock and all its keys are together, once, or not at all.
func TestClusterFencedHalfWay(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	w := harness.Dial(t, harness.StartClusterProxy(t, tc, "--cluster-retry", "300ms").Addr())
	patient := harness.Dial(t, harness.StartClusterProxy(t, tc).Addr())
	slot := slots.Slot([]byte("{h}"))
	from, err := tc.Owner(slot)
	if err != nil {
		t.Fatal(err)
	}
	to := tc.Servers[0]
	if to == from {
		to = tc.Servers[1]
	}
	move := func(keys ...string) {
		args := []any{"MIGRATE", "127.0.0.1", to.Port(), "", 0, 10000, "REPLACE", "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		from.Do(t, args...)
	}
	harness.Expect(t, w, ok, "SET", "{h}a", "1")
	harness.Expect(t, w, ok, "SET", "{h}b", "1")
	harness.Expect(t, w, ok, "LOCK", "{h}l", "OWNER", "me", "PX", "600000")
	fenced := func(owner, cmd string) string {
		return w.Do(append([]string{"FENCED", "{h}l", "OWNER", owner}, strings.Fields(cmd)...)...)
	}
	const half = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
	// answered repeats a command that is not to be answered half: on a busy machine 300 ms may pass first, and nothing was run.
	answered := func(owner, cmd string) (got string) {
		for end := time.Now().Add(20 * time.Second); got == "" || got == half && time.Now().Before(end); {
			got = fenced(owner, cmd)
		}
		return got
	}
	check := func(when, cmd, want string) {
		t.Helper()
		ask := answered
		if want == half {
			ask = fenced
		}
		if got := ask("me", cmd); got != want {
			t.Errorf("%s: %s: %q, want %q", when, cmd, got, want)
		}
	}
	if err := tc.BeginMove(slot, from, to); err != nil {
		t.Fatal(err)
	}
	check("nothing has gone", "INCR {h}a", ":2\r\n")
	check("nothing has gone", "PUBLISH news hi", ":0\r\n")
	check("nothing has gone", "INCR {h}new", half)
	move("{h}a")
	check("the key has gone", "INCR {h}a", half)
	check("the key has gone", "INCR {h}b", ":2\r\n")
	check("the key has gone", "PUBLISH news hi", ":0\r\n")
	if got := answered("other", "INCR {h}a"); !strings.HasPrefix(got, "-NOTHELD ") {
		t.Errorf("%q", got)
	}
	patient.Send("FENCED", "{h}l", "OWNER", "me", "INCR", "{h}a") // will be, when the lock has followed
	move("{h}l")
	if got := patient.Read(); got != ":3\r\n" {
		t.Errorf("%q", got)
	}
	check("key and lock have gone", "INCR {h}a", ":4\r\n")
	check("the lock has gone", "INCR {h}b", half)
	check("the lock has gone", "PUBLISH news hi", ":0\r\n")
	check("the lock has gone", "INCR {h}new", half)
	if got := answered("other", "INCR {h}a"); !strings.HasPrefix(got, "-NOTHELD ") {
		t.Errorf("%q", got)
	}
	for n := 1; n > 0; {
		if n, err = tc.MoveKeys(slot, from, to, 10); err != nil {
			t.Fatal(err)
		}
	}
	if err := tc.EndMove(slot, from, to); err != nil {
		t.Fatal(err)
	}
	check("all have gone", "INCR {h}b", ":3\r\n")
	check("all have gone", "INCR {h}new", ":1\r\n")
	harness.Expect(t, w, "$1\r\n4\r\n", "GET", "{h}a")
}

// bulkReply is a bulk string.
var bulkReply = regexp.MustCompile(`(?s)^\$[0-9]+\r\n(.*)\r\n$`)

func bulk(reply string) string {
	if m := bulkReply.FindStringSubmatch(reply); m != nil {
		return m[1]
	}
	return ""
}

func isRefused(answer string) bool {
	return strings.HasPrefix(answer, "-NOTHELD ") || strings.HasPrefix(answer, "-LOCKLOST ")
}

// fencedWorker reads a counter under a lock whose lease, every second time, often runs out in the middle of it, and writes one more.
func fencedWorker(w *harness.Wire, i int, done *fencedCount, stop func() bool) {
	for turn := 0; !stop(); turn++ {
		owner := fmt.Sprint("worker-", i, "-", turn)
		lease := "30"
		if turn%2 == 1 { // on a busy machine no write is done within 30 ms
			lease = "5000"
		}
		if got, err := w.Try("LOCK", "{c}l", "BLOCK", "1000", "PX", lease, "OWNER", owner); err != nil || got != ok {
			continue
		}
		got, err := fencedAgain(w, "{c}l", "OWNER", owner, "GET", "{c}n")
		if err != nil || got[0] != '$' {
			done.other(got, err)
			continue
		}
		n, _ := strconv.Atoi(bulk(got))
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
		switch got, err = fencedAgain(w, "{c}l", "OWNER", owner, "SET", "{c}n", strconv.Itoa(n+1)); {
		case err == nil && got == ok:
			done.done.Add(1)
		case err == nil && isRefused(got):
			done.refused.Add(1)
		case err == nil && strings.Contains(got, "outcome of this command is unknown"):
			done.unknown.Add(1)
		default:
			done.other(got, err)
		}
		_, _ = w.Try("UNLOCK", "{c}l", "OWNER", owner)
	}
}

// fencedAgain sends a FENCED again for as long as it says that nothing was run: on a busy machine a slot's moves change the lock each time that
// it is looked at.
func fencedAgain(w *harness.Wire, words ...string) (got string, err error) {
	for again := true; again; again = err == nil && strings.HasPrefix(got, "-ERR nothing was run: ") {
		got, err = w.Try(append([]string{"FENCED"}, words...)...)
	}
	return got, err
}

// fencedCount is what such workers were answered.
type fencedCount struct {
	done, refused, unknown atomic.Int64

	mu     sync.Mutex
	others []string
}

func (c *fencedCount) other(got string, err error) {
	if err == nil && isRefused(got) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others = append(c.others, fmt.Sprintf("%q, %v", got, err))
}

func (c *fencedCount) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d writes done, %d refused, %d of unknown outcome, others %v", c.done.Load(), c.refused.Load(), c.unknown.Load(), c.others)
}

// The slot of the lock and of its counter moves to and fro while leases run out in the middle of the work: the counter is
// what was answered OK.
func TestClusterFencedCounterWhileSlotsMove(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	proxies := []*harness.Proxy{harness.StartClusterProxy(t, tc), harness.StartClusterProxy(t, tc)}
	var count fencedCount
	moves := 25
	if harness.Long() {
		moves = 500
	}
	stop, finished := make(chan struct{}), make(chan struct{})
	conns := make([]*harness.Wire, 6)
	for i := range conns {
		conns[i] = harness.Dial(t, proxies[i%2].Addr())
	}
	harness.Expect(t, conns[0], ok, "SET", "{c}n", "0")
	go func() {
		defer close(finished)
		harness.Together(len(conns), func(i int) { fencedWorker(conns[i], i, &count, func() bool { return isClosed(stop) }) })
	}()
	for range moves {
		moveElsewhere(t, tc, slots.Slot([]byte("{c}")))
	}
	harness.Eventually(t, "writes are done and refused", func() bool { return count.done.Load() > 0 && count.refused.Load() > 0 })
	close(stop)
	<-finished
	got := bulk(conns[0].Do("GET", "{c}n"))
	t.Logf("%d moves, %s; the counter is %s; %s", moves, &count, got, moved(conns[0]))
	if got != strconv.FormatInt(count.done.Load(), 10) || count.unknown.Load() > 0 || len(count.others) > 0 {
		t.Error("not exact")
	}
}

// isClosed says that c has been closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// late is a late writer's turn.
type late struct {
	lock, counter string
	before        int
	owner         []string
}

// write is what it sends: one more than it has read.
func (l late) write(fenced bool) []string {
	set := []string{"SET", l.counter, strconv.Itoa(l.before + 1)}
	if !fenced {
		return set
	}
	return append(append([]string{"FENCED", l.lock}, l.owner...), set...)
}

// A proxy is stopped past the leases that it renews, with writes in its sockets, while others take the locks, write, and the
// slots of all move: every late write is refused.
func TestClusterFencedStoppedWhileSlotsMove(t *testing.T) {
	t.Parallel()
	const writers = 40
	for _, fenced := range []bool{true, false} {
		tc := testredis.StartCluster(t, 3, 0)
		p := harness.StartClusterProxy(t, tc, "--lock-watchdog-timeout", "1s")
		w := harness.Dial(t, harness.StartClusterProxy(t, tc).Addr())
		var all []late
		var clients []*harness.Wire
		for i := range writers {
			l := late{lock: fmt.Sprintf("{late%d}l", i), counter: fmt.Sprintf("{late%d}n", i), before: rand.IntN(1000)}
			if i%2 == 1 {
				l.owner = []string{"OWNER", fmt.Sprint("late-", i)}
			}
			harness.Expect(t, w, ok, "SET", l.counter, strconv.Itoa(l.before))
			clients = append(clients, harness.Dial(t, p.Addr()))
			harness.Eventually(t, "it is granted", func() bool { // nil, when a busy machine takes a lease for the answer
				lock := append([]string{"LOCK", l.lock}, l.owner...)
				if l.owner != nil {
					lock = append(lock, "PX", "1000")
				}
				return clients[i].Do(lock...) == ok
			})
			all = append(all, l)
		}
		p.Stop()
		time.Sleep(100 * time.Millisecond) // all its threads have got the signal by then
		for i, l := range all {
			clients[i].Send(l.write(fenced)...)
		}
		for i := range 4 { // some stay, some leave
			moveElsewhere(t, tc, slots.Slot([]byte(all[i].lock)))
		}
		for _, l := range all { // somebody else takes every lock when it is free, and adds ten
			harness.Expect(t, w, ok, "LOCK", l.lock, "BLOCK", "20000")
			harness.Expect(t, w, fmt.Sprintf(":%d\r\n", l.before+10), "INCRBY", l.counter, "10")
			harness.Expect(t, w, yes, "UNLOCK", l.lock)
		}
		for i := range 4 {
			moveElsewhere(t, tc, slots.Slot([]byte(all[i+2].lock)))
		}
		p.Cont()
		refused, lost := 0, 0
		for i, l := range all {
			if answer := clients[i].Read(); isRefused(answer) {
				refused++
			} else if fenced {
				t.Errorf("a late write was answered %q", answer)
			}
			if bulk(w.Do("GET", l.counter)) != strconv.Itoa(l.before+10) {
				lost++
			}
		}
		t.Logf("fenced %v: of %d late writes %d refused, %d updates of others lost", fenced, writers, refused, lost)
		if fenced && (refused != writers || lost > 0) || !fenced && lost != writers {
			t.Error("late writes were done, or the test has no teeth")
		}
	}
}

// Masters change places with their replicas, and then one dies: what was answered OK before that has been done, what was
// refused has not, and FENCED works again at the new master.
func TestClusterFencedFailover(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1)
	p := harness.StartClusterProxy(t, tc, "--cluster-retry", "20s")
	var count fencedCount
	stop, finished := make(chan struct{}), make(chan struct{})
	conns := make([]*harness.Wire, 4)
	for i := range conns {
		conns[i] = harness.Dial(t, p.Addr())
	}
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, ok, "SET", "{c}n", "0")
	go func() {
		defer close(finished)
		harness.Together(len(conns), func(i int) { fencedWorker(conns[i], i, &count, func() bool { return isClosed(stop) }) })
	}()
	slot := slots.Slot([]byte("{c}"))
	for range 3 {
		before := count.done.Load()
		if err := tc.Failover(replicaOf(t, tc, slot)); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "writes go on", func() bool { return count.done.Load() > before+5 })
	}
	close(stop)
	<-finished
	got, _ := strconv.ParseInt(bulk(w.Do("GET", "{c}n")), 10, 64)
	t.Logf("%s; the counter is %d", &count, got)
	if got < count.done.Load() || got > count.done.Load()+count.unknown.Load() || len(count.others) > 0 {
		t.Error("not exact")
	}
	harness.Eventually(t, "a replica has the lock in time", func() bool { return w.Do("LOCK", "{c}l", "BLOCK", "10000", "REPLICAS", "1", "SELF") == ok })
	harness.Expect(t, w, ":1\r\n", "FENCED", "{c}l", "INCR", "{c}m")
	master, err := tc.Owner(slot)
	if err != nil {
		t.Fatal(err)
	}
	harness.Expect(t, w, ":1\r\n", "WAIT", "1", "10000")
	replicaOf(t, tc, slot)
	if err := tc.Watchful(true); err != nil {
		t.Fatal(err)
	}
	master.Kill()
	if got := w.Do("FENCED", "{c}l", "INCR", "{c}m"); got != ":2\r\n" && !strings.Contains(got, "outcome of this command is unknown") {
		t.Errorf("%q", got)
	}
	harness.Eventually(t, "the lock is at the new master", func() bool { return w.Do("FENCED", "{c}l", "PING") == "+PONG\r\n" })
}

// replicaOf is a replica of the master that has a slot.
func replicaOf(t *testing.T, tc *testredis.Cluster, slot int) (replica *testredis.Server) {
	t.Helper()
	harness.Eventually(t, "it has a replica", func() bool {
		master, err := tc.Owner(slot)
		if err != nil || master == nil {
			return false
		}
		for line := range strings.Lines(fmt.Sprintf("%s", master.Do(t, "CLUSTER", "NODES"))) {
			f := strings.Fields(line)
			if f[3] == tc.ID(master) && !strings.Contains(f[2], "fail") {
				for _, s := range tc.Servers {
					if tc.ID(s) == f[0] {
						replica = s
						return true
					}
				}
			}
		}
		return false
	})
	return replica
}
