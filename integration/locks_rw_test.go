package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The methods of Redisson's RedissonReadWriteLockTest on our verbs. Connections stand for its threads and instances: a second
// one is "other". Those that are not here, and why:
//   - testInCluster: its four steps are in testWR; a cluster upstream has tests of its own.
//   - testIsHeldByCurrentThread(OtherThread), testIsLocked(OtherThread), testHoldCount, testReadLockIsLocked: the methods do not
//     exist here; what they ask is read from LOCKINFO in rwHolders, which the cases use.
//   - testConcurrency_*: TestReadersAndWriters, with 64 connections through two proxies.
//   - testMultiInstanceZombieReadLockPerformance: disabled at Redisson.
//
// rwStep is one command of a connection, by its letter, and what it is answered; "sleep ms" waits. A want that ends in a blank
// is only the beginning of the reply.
type rwStep struct{ who, call, want string }

const (
	ok, yes, no, null = "+OK\r\n", ":1\r\n", ":0\r\n", "$-1\r\n"
	deadlock          = "-DEADLOCK "
	rwLost            = "-LOCKLOST "
	rwNotHeld         = "-NOTHELD "
)

var redissonReadWriteLockTest = map[string][]rwStep{
	"testReadLockExpiration": { // writer gets in when the longer of two read leases is over
		{"a", "RLOCK k PX 1000", ok}, {"b", "RLOCK k PX 300", ok}, {"w", "WLOCK k BLOCK 200", null}, {"", "sleep 200", ""},
		{"w", "WLOCK k BLOCK 200", null}, {"w", "WLOCK k BLOCK 3000", ok}, {"a", "UNLOCK k", rwLost},
	},
	"testReadLockExpirationRenewal": { // watched by a watchdog of 600 ms
		{"a", "RLOCK k", ok}, {"b", "RLOCK k", ok}, {"a", "RLOCK k", ok}, {"", "sleep 1500", ""},
		{"a", "UNLOCK k", no}, {"a", "UNLOCK k", yes}, {"b", "UNLOCK k", yes}, {"a", "EXISTS k", no},
	},
	"testName": {
		{"a", "RLOCK {test}:abc:key", ok}, {"a", "RLOCK {test}:abc:key", ok}, {"a", "UNLOCK {test}:abc:key", no}, {"a", "UNLOCK {test}:abc:key", yes},
		{"a", "DBSIZE", no},
	},
	// Ours does not add the leases: the longer one counts.
	"testWriteLockExpiration": {
		{"a", "WLOCK k PX 900", ok}, {"a", "WLOCK k PX 100", ok}, {"", "sleep 300", ""}, {"b", "WLOCK k BLOCK 100", null}, {"b", "WLOCK k BLOCK 3000", ok},
	},
	"testReadLockLeaseTimeoutDiffThreadsWRR": {
		{"w", "WLOCK k PX 500", ok}, {"a", "RLOCK k BLOCK 3000", ok}, {"b", "RLOCK k BLOCK 3000", ok}, {"w", "UNLOCK k", rwLost},
	},
	"testReadLockLeaseTimeoutDiffThreadsRRW": {
		{"a", "RLOCK k PX 500", ok}, {"b", "RLOCK k", ok}, {"b", "UNLOCK k", yes}, {"w", "WLOCK k", null}, {"w", "WLOCK k BLOCK 3000", ok},
	},
	"testReadLockLeaseTimeout": {
		{"a", "RLOCK k PX 200", ok}, {"a", "RLOCK k PX 300", ok}, {"", "sleep 400", ""}, {"w", "WLOCK k", ok}, {"a", "UNLOCK k", rwLost},
	},
	"testWR": {
		{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"a", "UNLOCK k READ", yes}, {"b", "RLOCK k", null}, {"b", "WLOCK k", null},
		{"a", "UNLOCK k WRITE", yes}, {"a", "EXISTS k", no},
	},
	"testWriteReadReentrancy": { // where Redisson's WLOCK of an owner that reads answers false for ever, ours says why
		{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"b", "RLOCK k", null}, {"a", "UNLOCK k WRITE", yes}, {"b", "RLOCK k", ok}, {"b", "UNLOCK k", yes},
		{"a", "WLOCK k", deadlock}, {"b", "WLOCK k", null}, {"a", "UNLOCK k READ", yes}, {"a", "WLOCK k", ok},
	},
	"testWriteLock": {
		{"a", "WLOCK k", ok}, {"a", "WLOCK k", ok}, {"b", "WLOCK k", null}, {"b", "RLOCK k", null}, {"a", "UNLOCK k", no}, {"b", "RLOCK k", null},
		{"a", "UNLOCK k", yes}, {"b", "RLOCK k", ok}, {"a", "WLOCK k", null}, {"a", "UNLOCK k WRITE", rwNotHeld},
	},
	"testMultiRead": {
		{"a", "RLOCK k", ok}, {"b", "RLOCK k", ok}, {"c", "RLOCK k", ok}, {"w", "WLOCK k", null}, {"a", "UNLOCK k", yes}, {"c", "UNLOCK k", yes},
		{"w", "WLOCK k", null}, {"b", "UNLOCK k", yes}, {"w", "WLOCK k", ok},
	},
	"testForceUnlock": {
		{"a", "WLOCK k", ok}, {"b", "UNLOCK k READ FORCE", no}, {"b", "RLOCK k", null}, {"b", "UNLOCK k WRITE FORCE", yes}, {"b", "RLOCK k", ok},
		{"a", "UNLOCK k WRITE FORCE", no}, {"a", "UNLOCK k READ FORCE", yes}, {"b", "UNLOCK k", rwLost}, {"a", "UNLOCK k WRITE", rwLost}, {"a", "DBSIZE", no},
	},
	"testReadWriteTTL": { // over several leases of the watchdog, both sides and then one
		{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"", "sleep 1300", ""}, {"a", "UNLOCK k WRITE", yes}, {"", "sleep 1300", ""},
		{"w", "WLOCK k", null}, {"a", "UNLOCK k", yes},
	},
	"testExpireRead":  {{"a", "RLOCK k PX 200", ok}, {"b", "WLOCK k BLOCK 2000", ok}, {"a", "UNLOCK k READ", rwLost}},
	"testExpireWrite": {{"a", "WLOCK k PX 200", ok}, {"b", "WLOCK k BLOCK 2000", ok}, {"a", "UNLOCK k WRITE", rwLost}},
	"testAutoExpire": { // here the locks of a client that goes are freed at once
		{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"a", "QUIT", ok}, {"b", "WLOCK k BLOCK 2000", ok},
	},
	"testHoldCount": {
		{"a", "RLOCK k", ok}, {"a", "LOCKINFO k", "read a:read=1"}, {"a", "RLOCK k", ok}, {"b", "RLOCK k", ok}, {"b", "LOCKINFO k", "read a:read=2 b:read=1"},
		{"a", "UNLOCK k ALL", yes}, {"b", "UNLOCK k", yes}, {"a", "LOCKINFO k", "none"}, {"a", "WLOCK k", ok}, {"a", "WLOCK k", ok}, {"a", "RLOCK k", ok},
		{"a", "LOCKINFO k", "write a:read=1 a:write=2"}, {"a", "UNLOCK k WRITE ALL", yes}, {"a", "LOCKINFO k", "read a:read=1"},
	},
	"testUnlockFail": {{"a", "WLOCK k", ok}, {"b", "UNLOCK k WRITE", rwNotHeld}, {"b", "UNLOCK k READ", rwNotHeld}, {"b", "UNLOCK k", "-LOCKKIND "}, {"a", "UNLOCK k", yes}},
	"testLockUnlock": {{"a", "RLOCK k", ok}, {"a", "UNLOCK k", yes}, {"a", "RLOCK k", ok}, {"a", "UNLOCK k", yes}, {"a", "WLOCK k", ok}, {"a", "UNLOCK k", yes}, {"a", "WLOCK k", ok}, {"a", "UNLOCK k", yes}},
	"testReentrancy": {{"a", "WLOCK k", ok}, {"a", "WLOCK k", ok}, {"a", "UNLOCK k", no}, {"b", "WLOCK k", null}, {"a", "UNLOCK k", yes}, {"b", "WLOCK k", ok}},
	"not Redisson's: both sides and none named": {{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"a", "UNLOCK k", "-ERR "}, {"a", "RENEW k", "-ERR "}, {"a", "RENEW k READ PX 9000", yes}, {"a", "RENEW k WRITE", yes}},
	"testMultiInstanceReadLockZombieCleanup": { // a reader that nobody renews any more; another holds on past its lease, and goes
		{"a", "RLOCK k PX 700", ok}, {"b", "RLOCK k", ok}, {"", "sleep 1500", ""}, {"w", "WLOCK k", null}, {"b", "UNLOCK k", yes}, {"w", "WLOCK k BLOCK 2000", ok},
	},
}

func TestRedissonReadWriteLock(t *testing.T) {
	for name, steps := range redissonReadWriteLockTest {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testredis.Start(t)
			p := startProxy(t, s.URL(), "--lock-watchdog-timeout", "600ms")
			wires, names := map[string]*wire{}, map[string]string{}
			for i, step := range steps {
				if ms, found := strings.CutPrefix(step.call, "sleep "); found {
					d, _ := time.ParseDuration(ms + "ms")
					time.Sleep(d)
					continue
				}
				w := wires[step.who]
				if w == nil {
					w = dial(t, p.Addr())
					wires[step.who] = w
					names[fmt.Sprint(clientID(t, w))] = step.who
				}
				got := w.do(strings.Split(step.call, " ")...)
				if strings.HasPrefix(step.call, "LOCKINFO") {
					got = rwHolders(t, got, names)
				}
				if got != step.want && !(strings.HasSuffix(step.want, " ") && strings.HasPrefix(got, step.want)) {
					t.Fatalf("step %d, %s by %s: %q, want %q", i+1, step.call, step.who, got, step.want)
				}
			}
		})
	}
}

// rwHolders is the kind of a lock and its holders, by the names of their connections.
func rwHolders(t *testing.T, reply string, names map[string]string) string {
	t.Helper()
	m := object(t, decode(t, reply))
	var holders []string
	for _, h := range objects(t, m["holders"]) {
		holders = append(holders, fmt.Sprintf("%s:%v=%v", names[fmt.Sprint(h["client-id"])], h["kind"], h["holds"]))
	}
	slices.Sort(holders)
	return strings.TrimSpace(fmt.Sprint(m["kind"]) + " " + strings.Join(holders, " "))
}

// TestTwentyReadersBehindAWriter is testWriteRead: all finish soon after the writer, since they read together. And a downgrade
// wakes those who wait, though the former writer still reads.
func TestTwentyReadersBehindAWriter(t *testing.T) {
	const readers = 20
	for _, downgrade := range []bool{false, true} {
		s := testredis.Start(t)
		p, other := startProxy(t, s.URL(), "--wait-poll", "60s"), startProxy(t, s.URL(), "--wait-poll", "60s")
		w := dial(t, p.Addr())
		expect(t, w, ok, "WLOCK", "k")
		wires := make([]*wire, readers)
		for i := range wires {
			wires[i] = dial(t, []*proxy{p, other}[i%2].Addr())
			wires[i].send("RLOCK", "k", "BLOCK", "0")
		}
		elsewhere := dial(t, other.Addr())
		eventually(t, "all wait", func() bool { return waitingHere(t, w, "k")+waitingHere(t, elsewhere, "k") == readers })
		eventually(t, "both listen", func() bool { return listeners(t, s, "redisson_rwlock:{k}") == 2 })
		heard := listen(t, s, "redisson_rwlock:{k}")
		if downgrade {
			expect(t, w, ok, "RLOCK", "k")
		}
		before := scriptCalls(t, s)
		expect(t, w, yes, "UNLOCK", "k", "WRITE")
		began := time.Now()
		expectHeard(t, heard, "redisson_rwlock:{k} 1")
		for _, r := range wires {
			if got := r.read(); got != ok {
				t.Fatal(got)
			}
		}
		took, scripts := time.Since(began), scriptCalls(t, s)-before
		t.Logf("%d readers read %v after the writer, %d scripts", readers, took.Round(time.Microsecond), scripts)
		if scripts > readers+6 {
			t.Errorf("%d scripts", scripts)
		}
		for _, r := range wires {
			expect(t, r, yes, "UNLOCK", "k")
		}
		if downgrade {
			expect(t, w, yes, "UNLOCK", "k")
		}
		expectHeard(t, heard, "redisson_rwlock:{k} 0")
	}
}

// TestReadersAndWriters has 64 connections through two proxies read and write: writers alone, readers never beside one.
func TestReadersAndWriters(t *testing.T) {
	const connections, proxies = 64, 2
	sections := int64(10000)
	if testing.Short() {
		sections = 1500
	}
	s := testredis.Start(t)
	s.Do(t, "MSET", "counter", 0, "twin", 0)
	var wires [connections]*wire
	for i := range proxies {
		p := startProxy(t, s.URL())
		for j := i; j < connections; j += proxies {
			wires[j] = dial(t, p.Addr())
		}
	}
	var todo, writes, most atomic.Int64
	var failed error
	var once sync.Once
	before := scriptCalls(t, s)
	began := time.Now()
	together(connections, func(i int) {
		for {
			n := todo.Add(1)
			if n > sections {
				return
			}
			section := readTwins
			if (n*2654435761>>7)%4 == 0 {
				section = writeTwins
				writes.Add(1)
			}
			if err := section(wires[i], &most); err != nil {
				once.Do(func() { failed = err })
				return
			}
		}
	})
	took := time.Since(began)
	if failed != nil {
		t.Fatal(failed)
	}
	if got, _ := redis.Int64(s.Do(t, "GET", "counter"), nil); got != writes.Load() {
		t.Errorf("the counter is %d after %d writes", got, writes.Load())
	}
	if got := keys(t, s); len(got) != 2 {
		t.Errorf("keys %q are left", got)
	}
	perSection := float64(scriptCalls(t, s)-before) / float64(sections)
	t.Logf("%d sections, %d of them writing, exact, %.0f a second; %.2f scripts a section; up to %d read together", sections, writes.Load(),
		float64(sections)/took.Seconds(), perSection, most.Load())
	if perSection > 4 {
		t.Errorf("%.2f scripts a section", perSection)
	}
	if most.Load() < 2 {
		t.Error("readers never read together")
	}
}

var reading atomic.Int64

// readTwins finds both counters equal, which they are not within a write.
func readTwins(w *wire, most *atomic.Int64) error {
	if got, err := w.try("RLOCK", "l", "BLOCK", "0"); err != nil || got != ok {
		return errors.Join(err, errReply("RLOCK", got))
	}
	most.Store(max(most.Load(), reading.Add(1)))
	defer reading.Add(-1)
	one, err := w.try("GET", "counter")
	if err != nil {
		return err
	}
	if two, err := w.try("GET", "twin"); err != nil || two != one {
		return errors.Join(err, errReply("a reader saw "+one, two))
	}
	if got, err := w.try("UNLOCK", "l"); err != nil || got != yes {
		return errors.Join(err, errReply("UNLOCK", got))
	}
	return nil
}

// writeTwins adds one to both counters in a way that loses counts beside another writer.
func writeTwins(w *wire, _ *atomic.Int64) error {
	if got, err := w.try("WLOCK", "l", "BLOCK", "0"); err != nil || got != ok {
		return errors.Join(err, errReply("WLOCK", got))
	}
	got, err := w.try("GET", "counter")
	n := 0
	if _, scan := fmt.Sscan(bulk(got), &n); err != nil || scan != nil {
		return errors.Join(err, scan)
	}
	for _, key := range []string{"counter", "twin"} {
		if got, err := w.try("SET", key, fmt.Sprint(n+1)); err != nil || got != ok {
			return errors.Join(err, errReply("SET", got))
		}
	}
	if got, err := w.try("UNLOCK", "l"); err != nil || got != yes {
		return errors.Join(err, errReply("UNLOCK", got))
	}
	return nil
}

// TestRWOptions has what the options say on both sides: owners across proxies, ONCE, FENCE, losses.
func TestRWOptions(t *testing.T) {
	s := testredis.Start(t)
	p, other := startProxy(t, s.URL()), startProxy(t, s.URL())
	w, w3 := dial(t, p.Addr()), dialHearing(t, other.Addr())
	for range 3 {
		expect(t, w, ok, "RLOCK", "k", "OWNER", "o", "ONCE")
		expect(t, w3, ok, "RLOCK", "k", "OWNER", "o", "ONCE")
	}
	if h := hash(t, s, "k"); h["o"] != "1" || h["mode"] != "read" {
		t.Error(h)
	}
	if !exists(t, s, "lockproxy_watch:{k}:o") || pttl(t, s, "{k}:o:rwlock_timeout:1") <= 0 {
		t.Error(keys(t, s))
	}
	expect(t, w, yes, "UNLOCK", "k", "OWNER", "o")
	expect(t, w3, yes, "UNLOCK", "k", "OWNER", "o", "READ")
	first := number(t, w.do("WLOCK", "k", "OWNER", "o", "FENCE"))
	if second := number(t, w3.do("WLOCK", "k", "OWNER", "o", "FENCE")); second <= first {
		t.Error(first, second)
	}
	if !exists(t, s, "lockproxy_watch:{k}:o:write") {
		t.Error(keys(t, s))
	}
	expect(t, w, yes, "UNLOCK", "k", "OWNER", "o", "ALL")
	if got := w.do("UNLOCK", "k", "OWNER", "nobody"); !strings.HasPrefix(got, rwNotHeld) {
		t.Error(got)
	}
	pooled := dial(t, p.Addr())
	expect(t, pooled, ok, "CLIENT", "SETINFO", "LIB-NAME", "x")
	expect(t, pooled, ok, "RLOCK", "p")
	for _, verb := range []string{"RLOCK", "WLOCK"} {
		if got := pooled.do(verb, "p"); !strings.HasPrefix(got, "-OWNERREQUIRED ") {
			t.Error(got)
		}
	}
	expect(t, pooled, ok, "RLOCK", "p", "SELF")
	entry := objects(t, decode(t, pooled.do("LOCKLIST")))
	if len(entry) != 1 || entry[0]["kind"] != "read" || entry[0]["holds"] != int64(2) {
		t.Error(entry)
	}
	expect(t, w3, "+OK\r\n", "WLOCK", "lost", "PX", "200")
	want := strings.Replace(lostPush("lost", "expired"), "$5\r\nplain", "$5\r\nwrite", 1)
	if got := w3.read(); got != want {
		t.Errorf("pushed %q", got)
	}
}
