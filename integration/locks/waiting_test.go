package locks

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What was said before a verb that waits is answered at once, what was said after it in order afterwards.
func TestPipelineAroundAWait(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		holder, w := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
		harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
		harness.Expect(t, holder, "+OK\r\n", "SET", "x", "old")
		w.Send("ECHO", "before")
		w.Send("LOCK", "k", "BLOCK", "0")
		w.Send("GET", "x")
		w.Send("UNLOCK", "k")
		w.Send("LOCK", "k", "BLOCK", "0")
		if got := w.Read(); got != "$6\r\nbefore\r\n" {
			t.Fatal(got)
		}
		if !w.Silent(50 * time.Millisecond) {
			t.Fatalf("too early: %q", w.Read())
		}
		harness.Expect(t, holder, "+OK\r\n", "SET", "x", "new")
		harness.Expect(t, holder, ":1\r\n", "UNLOCK", "k")
		for _, want := range []string{"+OK\r\n", "$3\r\nnew\r\n", ":1\r\n", "+OK\r\n"} {
			if got := w.Read(); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	})
}

// Waiters of one proxy are served first come, first served; one that gives up or goes away makes room.
func TestWaitersInLine(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		const n = 20
		p := harness.StartProxy(t, upstream)
		holder := harness.Dial(t, p.Addr())
		harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
		var line []*harness.Wire
		var ids []string
		for i := range n {
			w := harness.Dial(t, p.Addr())
			ids = append(ids, strconv.FormatInt(clientID(t, w), 10))
			w.Send("LOCK", "k", "BLOCK", "60000")
			harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, holder, "k") == i+1 })
			line = append(line, w)
		}
		for i, w := range line {
			switch i % 5 {
			case 1: // as if its time were over, which on a busy machine may be before all are here
				harness.Expect(t, holder, ":1\r\n", "CLIENT", "UNBLOCK", ids[i], "TIMEOUT")
				if got := w.Read(); got != "$-1\r\n" {
					t.Fatalf("waiter %d, after its time: %q", i, got)
				}
			case 2:
				w.Reset()
			}
		}
		harness.Eventually(t, "only those that wait on are left", func() bool { return harness.WaitingHere(t, holder, "k") == n-2*n/5 })
		harness.Expect(t, holder, ":1\r\n", "UNLOCK", "k")
		for i, w := range line {
			if i%5 == 1 || i%5 == 2 {
				continue
			}
			if got := w.Read(); got != "+OK\r\n" {
				t.Fatalf("waiter %d: %q", i, got)
			}
			for j, later := range line[i+1:] {
				if k := i + 1 + j; k%5 != 2 && !later.Silent(time.Microsecond) {
					t.Fatalf("waiter %d was served before %d", k, i)
				}
			}
			harness.Expect(t, w, ":1\r\n", "UNLOCK", "k")
		}
	})
}

func TestBlockTimes(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	holder, w := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
	for _, ms := range []int64{1, 50, 700} {
		began := time.Now()
		harness.Expect(t, w, "$-1\r\n", "LOCK", "k", "BLOCK", strconv.FormatInt(ms, 10))
		took := time.Since(began)
		if took < time.Duration(ms)*time.Millisecond {
			t.Errorf("BLOCK %d gave up after %v", ms, took)
		}
		t.Logf("BLOCK %d: nil after %v", ms, took.Round(100*time.Microsecond))
	}
	if got := harness.Dial3(t, p.Addr()).Do("LOCK", "k", "BLOCK", "1"); got != "_\r\n" {
		t.Errorf("nil in RESP3: %q", got)
	}
}

// Locks live in the client's database.
func TestDatabases(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	first, second := harness.StartProxy(t, s.URL()), harness.StartProxy(t, s.URL())
	var a, b [4]*harness.Wire
	for db := range a {
		a[db], b[db] = harness.Dial(t, first.Addr()), harness.Dial(t, second.Addr())
		harness.Expect(t, a[db], "+OK\r\n", "SELECT", strconv.Itoa(db))
		harness.Expect(t, b[db], "+OK\r\n", "SELECT", strconv.Itoa(db))
		harness.Expect(t, a[db], "+OK\r\n", "LOCK", "k")
		b[db].Send("LOCK", "k", "BLOCK", "0")
	}
	harness.Eventually(t, "they wait", func() bool { return listeners(t, s, "redisson_lock__channel:{k}") == 1 })
	for db := range a {
		for later := db; later < len(a); later++ {
			if !b[later].Silent(20 * time.Millisecond) {
				t.Fatalf("db %d: granted before UNLOCK: %q", later, b[later].Read())
			}
		}
		harness.Expect(t, a[db], ":1\r\n", "UNLOCK", "k")
		if got := b[db].Read(); got != "+OK\r\n" {
			t.Fatalf("db %d: %q", db, got)
		}
	}
}

// A client that goes frees all it held; one that was thrown out keeps it until it runs out, for it may be working still.
func TestManyLocksOfOneClient(t *testing.T) {
	t.Parallel()
	const n = 1000
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "9s")
	for _, kicked := range []bool{false, true} {
		w, other := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
		id := clientID(t, w)
		for i := range n {
			w.Send("LOCK", fmt.Sprint("k", i))
		}
		for range n {
			if got := w.Read(); got != "+OK\r\n" {
				t.Fatal(got)
			}
		}
		began := time.Now()
		if !kicked {
			w.Reset()
		} else if got := other.Do("CLIENT", "KILL", "ID", strconv.FormatInt(id, 10)); got != ":1\r\n" {
			t.Fatalf("CLIENT KILL: %q", got)
		}
		if kicked {
			harness.Eventually(t, "the locks of the killed client are watched no more", func() bool { return other.Do("LOCKLIST") == "*0\r\n" })
			if left := len(harness.Keys(t, s)); left != n {
				t.Errorf("%d locks are left of a client that was killed, want all %d to run out", left, n)
			}
		}
		harness.Eventually(t, "all are free", func() bool { return s.Do(t, "DBSIZE") == int64(0) })
		t.Logf("%d locks of one client, killed %v: all free after %v", n, kicked, time.Since(began).Round(time.Millisecond))
	}
}

// CLIENT KILL ends a wait too.
func TestKilledWaiter(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	holder, w := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	id := clientID(t, w)
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
	w.Send("LOCK", "k", "BLOCK", "0")
	harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, holder, "k") == 1 })
	harness.Expect(t, holder, ":1\r\n", "CLIENT", "KILL", "ID", strconv.FormatInt(id, 10))
	if !w.Closed() {
		t.Error("the killed waiter's connection is open")
	}
	harness.Eventually(t, "nobody waits", func() bool { return harness.WaitingHere(t, holder, "k") == 0 })
	harness.Expect(t, holder, ":1\r\n", "UNLOCK", "k")
	if got := holder.Do("LOCKLIST"); strings.Contains(got, "waiting") || exists(t, s, "k") {
		t.Errorf("a killed waiter got the lock: %q", got)
	}
}
