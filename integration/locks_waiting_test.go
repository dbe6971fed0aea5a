package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What was said before a verb that waits is answered at once, what was said after it in order afterwards.
func TestPipelineAroundAWait(t *testing.T) {
	stores(t, func(t *testing.T, upstream string) {
		p := startProxy(t, upstream)
		holder, w := dial(t, p.Addr()), dial(t, p.Addr())
		expect(t, holder, "+OK\r\n", "LOCK", "k")
		expect(t, holder, "+OK\r\n", "SET", "x", "old")
		w.send("ECHO", "before")
		w.send("LOCK", "k", "BLOCK", "0")
		w.send("GET", "x")
		w.send("UNLOCK", "k")
		w.send("LOCK", "k", "BLOCK", "0")
		if got := w.read(); got != "$6\r\nbefore\r\n" {
			t.Fatal(got)
		}
		if !w.silent(50 * time.Millisecond) {
			t.Fatalf("too early: %q", w.read())
		}
		expect(t, holder, "+OK\r\n", "SET", "x", "new")
		expect(t, holder, ":1\r\n", "UNLOCK", "k")
		for _, want := range []string{"+OK\r\n", "$3\r\nnew\r\n", ":1\r\n", "+OK\r\n"} {
			if got := w.read(); got != want {
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
		p := startProxy(t, upstream)
		holder := dial(t, p.Addr())
		expect(t, holder, "+OK\r\n", "LOCK", "k")
		var line []*wire
		for i := range n {
			w := dial(t, p.Addr())
			block := "0"
			if i%5 == 1 {
				block = "3000"
			}
			w.send("LOCK", "k", "BLOCK", block)
			eventually(t, "it waits", func() bool { return waitingHere(t, holder, "k") == i+1 })
			line = append(line, w)
		}
		for i, w := range line {
			switch i % 5 {
			case 1:
				if got := w.read(); got != "$-1\r\n" {
					t.Fatalf("waiter %d, after its time: %q", i, got)
				}
			case 2:
				w.reset()
			}
		}
		eventually(t, "only those that wait on are left", func() bool { return waitingHere(t, holder, "k") == n-2*n/5 })
		expect(t, holder, ":1\r\n", "UNLOCK", "k")
		for i, w := range line {
			if i%5 == 1 || i%5 == 2 {
				continue
			}
			if got := w.read(); got != "+OK\r\n" {
				t.Fatalf("waiter %d: %q", i, got)
			}
			for j, later := range line[i+1:] {
				if k := i + 1 + j; k%5 != 2 && !later.silent(time.Microsecond) {
					t.Fatalf("waiter %d was served before %d", k, i)
				}
			}
			expect(t, w, ":1\r\n", "UNLOCK", "k")
		}
	})
}

func TestBlockTimes(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := startProxy(t, s.URL())
	holder, w := dial(t, p.Addr()), dial(t, p.Addr())
	expect(t, holder, "+OK\r\n", "LOCK", "k")
	for _, ms := range []int64{1, 50, 700} {
		began := time.Now()
		expect(t, w, "$-1\r\n", "LOCK", "k", "BLOCK", strconv.FormatInt(ms, 10))
		took := time.Since(began)
		if took < time.Duration(ms)*time.Millisecond {
			t.Errorf("BLOCK %d gave up after %v", ms, took)
		}
		t.Logf("BLOCK %d: nil after %v", ms, took.Round(100*time.Microsecond))
	}
	if got := dial3(t, p.Addr()).do("LOCK", "k", "BLOCK", "1"); got != "_\r\n" {
		t.Errorf("nil in RESP3: %q", got)
	}
}

// Locks live in the client's database.
func TestDatabases(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	first, second := startProxy(t, s.URL()), startProxy(t, s.URL())
	var a, b [4]*wire
	for db := range a {
		a[db], b[db] = dial(t, first.Addr()), dial(t, second.Addr())
		expect(t, a[db], "+OK\r\n", "SELECT", strconv.Itoa(db))
		expect(t, b[db], "+OK\r\n", "SELECT", strconv.Itoa(db))
		expect(t, a[db], "+OK\r\n", "LOCK", "k")
		b[db].send("LOCK", "k", "BLOCK", "0")
	}
	eventually(t, "they wait", func() bool { return listeners(t, s, "redisson_lock__channel:{k}") == 1 })
	for db := range a {
		for later := db; later < len(a); later++ {
			if !b[later].silent(20 * time.Millisecond) {
				t.Fatalf("db %d: granted before UNLOCK: %q", later, b[later].read())
			}
		}
		expect(t, a[db], ":1\r\n", "UNLOCK", "k")
		if got := b[db].read(); got != "+OK\r\n" {
			t.Fatalf("db %d: %q", db, got)
		}
	}
}

// A client that goes frees all it held; one that was thrown out keeps it until it runs out, for it may be working still.
func TestManyLocksOfOneClient(t *testing.T) {
	t.Parallel()
	const n = 1000
	s := testredis.Start(t)
	p := startProxy(t, s.URL(), "--lock-watchdog-timeout", "5s")
	for _, kicked := range []bool{false, true} {
		w, other := dial(t, p.Addr()), dial(t, p.Addr())
		id := clientID(t, w)
		for i := range n {
			w.send("LOCK", fmt.Sprint("k", i))
		}
		for range n {
			if got := w.read(); got != "+OK\r\n" {
				t.Fatal(got)
			}
		}
		began := time.Now()
		if !kicked {
			w.reset()
		} else if got := other.do("CLIENT", "KILL", "ID", strconv.FormatInt(id, 10)); got != ":1\r\n" {
			t.Fatalf("CLIENT KILL: %q", got)
		}
		if kicked {
			time.Sleep(100 * time.Millisecond)
			if left := len(keys(t, s)); left != n {
				t.Errorf("%d locks are left of a client that was killed, want all %d to run out", left, n)
			}
			if got := other.do("LOCKLIST"); got != "*0\r\n" {
				t.Errorf("the locks of a killed client are watched on: %.200q", got)
			}
		}
		eventually(t, "all are free", func() bool { return s.Do(t, "DBSIZE") == int64(0) })
		t.Logf("%d locks of one client, killed %v: all free after %v", n, kicked, time.Since(began).Round(time.Millisecond))
	}
}

// CLIENT KILL ends a wait too.
func TestKilledWaiter(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := startProxy(t, s.URL())
	holder, w := dial(t, p.Addr()), dial(t, p.Addr())
	id := clientID(t, w)
	expect(t, holder, "+OK\r\n", "LOCK", "k")
	w.send("LOCK", "k", "BLOCK", "0")
	eventually(t, "it waits", func() bool { return waitingHere(t, holder, "k") == 1 })
	expect(t, holder, ":1\r\n", "CLIENT", "KILL", "ID", strconv.FormatInt(id, 10))
	if !w.closed() {
		t.Error("the killed waiter's connection is open")
	}
	eventually(t, "nobody waits", func() bool { return waitingHere(t, holder, "k") == 0 })
	expect(t, holder, ":1\r\n", "UNLOCK", "k")
	if got := holder.do("LOCKLIST"); strings.Contains(got, "waiting") || exists(t, s, "k") {
		t.Errorf("a killed waiter got the lock: %q", got)
	}
}
