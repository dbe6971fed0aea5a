package locks

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The replies of MULTILOCK and MULTIUNLOCK, in both protocols and before both stores.
func TestMultilockReplies(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		for nothing, dial := range map[string]func(testing.TB, string) *harness.Wire{"$-1\r\n": harness.Dial, "_\r\n": harness.Dial3} {
			a, b := dial(t, p.Addr()), dial(t, p.Addr())
			for _, c := range []struct {
				w          *harness.Wire
				call, want string
			}{
				{a, "MULTILOCK 2 x y", ok},
				{b, "MULTILOCK 3 w y z", nothing},
				{b, "MULTILOCK 3 w y z BLOCK 30", nothing},
				{b, "EXISTS w z", no},
				{b, "LOCK w", ok}, // what MULTILOCK takes, LOCK takes
				{a, "LOCK x", ok},
				{a, "MULTIUNLOCK 2 y x", yes},
				{a, "MULTIUNLOCK 3 y x nosuch", yes},
				{a, "MULTIUNLOCK 2 y x", "-NOTHELD "},
				{b, "UNLOCK w", yes},
				{a, "MULTILOCK 1 x PX 30000", ok},
				{a, "MULTILOCK 2 x y SELF", "-ERR this connection already holds 'x'"},
				{b, "EXISTS y", no},
				{a, "MULTIUNLOCK 1 x", yes},
				{a, "MULTILOCK 2 x y OWNER job EX 30", ok},
				{b, "MULTILOCK 2 y x OWNER job EX 60", ok},
				{a, "MULTILOCK 2 x y", nothing},
				{b, "MULTIUNLOCK 2 x y OWNER job", ":2\r\n"},
				{a, "MULTIUNLOCK 2 x y OWNER job", "-NOTHELD "}, // nothing remembers the first one
				{a, "MULTILOCK 2 x y OWNER job EX 30 BLOCK 0", "-ERR BLOCK must be shorter than EX or PX"},
				{a, "MULTILOCK 2 x y OWNER job PX 3000 BLOCK 3000", "-ERR BLOCK must be shorter than EX or PX"},
				{a, "MULTILOCK 2 x y OWNER job PX 3000 BLOCK 2999", ok},
				{a, "MULTIUNLOCK 2 x y OWNER job", ":2\r\n"},
				{a, "MULTILOCK 0 x", "-ERR numkeys should be greater than 0\r\n"},
				{a, "MULTIUNLOCK 3 x y", "-ERR Number of keys can't be greater than number of args\r\n"},
				{a, "MULTI", ok},
				{a, "MULTILOCK 1 x", "-ERR "},
				{a, "EXEC", "-EXECABORT "},
				{a, "EXISTS x y", no},
			} {
				if got := c.w.Do(strings.Split(c.call, " ")...); !strings.HasPrefix(got, c.want) {
					t.Errorf("%s: %q, want %q", c.call, got, c.want)
				}
			}
			head, tokens := harness.Split(a.Do("MULTILOCK", "4", "c", "a", "b", "a", "FENCE"))
			if head != "*4\r\n" || len(tokens) != 4 {
				t.Fatalf("%q %q", head, tokens)
			}
			if c, a, b := harness.Number(t, tokens[0]), harness.Number(t, tokens[1]), harness.Number(t, tokens[2]); a >= b || b >= c || tokens[3] != tokens[1] {
				t.Errorf("tokens of c a b a: %q", tokens)
			}
			harness.Expect(t, a, ":3\r\n", "MULTIUNLOCK", "3", "a", "b", "c")
		}
	})
}

// Redis' own ACL is asked about every key before any of them is taken.
func TestMultilockAccess(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "app", "on", ">secret", "~app:*", "+@read", "+@write")
	looked := regexp.MustCompile(` lua\] "(EXISTS|HSET)" "(app:1|app:2|other|zother)"`)
	m := startMonitor(t, s, func(line string) string {
		if found := looked.FindStringSubmatch(line); found != nil {
			return strings.ToLower(found[1]) + " " + found[2]
		}
		return ""
	})
	w := harness.Dial(t, harness.StartProxy(t, s.URL()).Addr())
	harness.Expect(t, w, "+OK\r\n", "AUTH", "app", "secret")
	for _, call := range []string{"MULTILOCK 2 app:1 other", "MULTILOCK 2 app:1 zother BLOCK 0", "MULTILOCK 2 app:1 other OWNER me EX 30", "MULTIUNLOCK 2 app:1 other OWNER me"} {
		if got := w.Do(strings.Split(call, " ")...); !strings.HasPrefix(got, "-NOPERM ") {
			t.Errorf("%s: %q", call, got)
		}
	}
	harness.Expect(t, w, "+OK\r\n", "MULTILOCK", "2", "app:1", "app:2")
	if m.until("hset app:2", 1); !slices.Equal(m.seen, []string{"exists app:1", "hset app:1", "exists app:2", "hset app:2"}) {
		t.Errorf("a refused call has looked at a lock, or taken one: %q", m.seen)
	}
	harness.Expect(t, w, ":2\r\n", "MULTIUNLOCK", "2", "app:1", "app:2")
}

// A client that ends while it waits, however it does, leaves nothing locked; one that is unblocked is told, and goes on.
func TestMultilockEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		holder := harness.Dial(t, p.Addr())
		harness.Expect(t, holder, "+OK\r\n", "LOCK", "z")
		free := func(how string) {
			t.Helper()
			harness.Eventually(t, how+" leaves nothing locked", func() bool {
				return holder.Do("EXISTS", "a", "b") == no && harness.WaitingHere(t, holder, "z") == 0
			})
		}
		stands := func() {
			t.Helper()
			harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, holder, "z") == 1 })
			harness.Expect(t, holder, ":2\r\n", "EXISTS", "a", "b")
		}
		for _, options := range []string{"BLOCK 0", "BLOCK 0 PX 90000", "BLOCK 80000 OWNER job EX 90"} {
			call := "MULTILOCK 3 z b a " + options
			c := startCli(t, p)
			c.typed(call)
			stands()
			c.child.Kill()
			free("kill -9 of " + call)

			w := harness.Dial(t, p.Addr())
			w.Send(strings.Split(call, " ")...)
			stands()
			w.Reset()
			free("a reset of " + call)

			w = harness.Dial(t, p.Addr())
			id := strings.Trim(w.Do("CLIENT", "ID"), ":\r\n")
			for how, want := range map[string]string{"TIMEOUT": null, "ERROR": "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"} {
				w.Send(strings.Split(call, " ")...)
				stands()
				harness.Expect(t, holder, yes, "CLIENT", "UNBLOCK", id, how)
				if got := w.Read(); got != want {
					t.Errorf("%s, unblocked with %s: %q", call, how, got)
				}
				free(how)
			}
		}
	})
}

// Clients of two proxies take three locks in every order for some seconds. None is ever stuck, and the counters that the
// locks guard are exact.
func TestMultilockHammer(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	proxies := []*harness.Proxy{harness.StartProxy(t, s.URL()), harness.StartProxy(t, s.URL())}
	names := []string{"a", "b", "c"}
	orders := [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0}, {0, 1}, {2, 0}, {1, 2}}
	var counts [3]atomic.Int64
	var all sync.WaitGroup
	each := 100
	if harness.Long() {
		each = 2000
	}
	for i := range 12 {
		w := harness.Dial(t, proxies[i%2].Addr())
		all.Add(1)
		go func() {
			defer all.Done()
			for n := i; n < i+each; n++ {
				if err := countUnderLocks(w, names, orders[n%len(orders)], n, &counts); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
			}
		}()
	}
	all.Wait()
	w := harness.Dial(t, proxies[0].Addr())
	total := int64(0)
	for i, name := range names {
		want := counts[i].Load()
		total += want
		harness.Expect(t, w, fmt.Sprintf("$%d\r\n%d\r\n", len(strconv.FormatInt(want, 10)), want), "GET", "count:"+name)
		harness.Expect(t, w, no, "EXISTS", name)
	}
	t.Logf("%d counts", total)
}

// countUnderLocks raises the counters of some locks by reading and writing them while it holds these.
func countUnderLocks(w *harness.Wire, names []string, which []int, n int, counts *[3]atomic.Int64) error {
	var keys []string
	for _, i := range which {
		keys = append(keys, names[i])
	}
	lock := append([]string{"MULTILOCK", strconv.Itoa(len(keys))}, keys...)
	lock = append(lock, "BLOCK", strconv.Itoa(n%2*100000))
	if n%3 == 0 {
		lock = append(lock, "PX", "100000")
	}
	if got, err := w.Try(lock...); got != ok {
		return fmt.Errorf("%q: %q, %w", lock, got, err)
	}
	for _, i := range which {
		got, err := w.Try("GET", "count:"+names[i])
		if err != nil {
			return err
		}
		count := 0
		if lines := strings.Split(got, "\r\n"); len(lines) > 2 {
			count, _ = strconv.Atoi(lines[1])
		}
		if got, err := w.Try("SET", "count:"+names[i], strconv.Itoa(count+1)); got != ok {
			return fmt.Errorf("SET: %q, %w", got, err)
		}
		counts[i].Add(1)
	}
	unlock := append([]string{"MULTIUNLOCK", strconv.Itoa(len(keys))}, keys...)
	if got, err := w.Try(unlock...); got != fmt.Sprintf(":%d\r\n", len(keys)) {
		return fmt.Errorf("%q: %q, %w", unlock, got, err)
	}
	return nil
}

// Waits that can never end are ended, and no others: each case's last wait is answered, the ones before go on.
func TestDeadlockIsTold(t *testing.T) {
	s := testredis.Start(t)
	first, second := harness.StartProxy(t, s.URL()), harness.StartProxy(t, s.URL())
	n := 0
	for name, c := range map[string]struct {
		hold, wait []string // of one client each; the third is at another proxy
		want       string
	}{
		"two":                 {[]string{"LOCK a", "LOCK b"}, []string{"LOCK b BLOCK 0", "LOCK a BLOCK 0"}, deadlock},
		"three":               {[]string{"LOCK a", "LOCK b", "", "LOCK c"}, []string{"LOCK b BLOCK 0", "LOCK c BLOCK 0", "", "LOCK a BLOCK 0"}, deadlock},
		"a MULTILOCK":         {[]string{"LOCK b", "LOCK c"}, []string{"LOCK c BLOCK 0", "MULTILOCK 2 a b BLOCK 0 PX 900"}, deadlock},
		"writers and readers": {[]string{"RLOCK a", "RLOCK b"}, []string{"WLOCK b BLOCK 0", "WLOCK a BLOCK 0"}, deadlock},
		"waits for a time":    {[]string{"LOCK a", "LOCK b"}, []string{"LOCK b BLOCK 0", "LOCK a BLOCK 300"}, null},
		"the other does":      {[]string{"LOCK a", "LOCK b"}, []string{"LOCK b BLOCK 60000", "LOCK a BLOCK 0"}, ""},
		"a lease":             {[]string{"LOCK a PX 4000", "LOCK b"}, []string{"LOCK b BLOCK 0", "LOCK a BLOCK 0"}, ok},
		"an owner":            {[]string{"LOCK a OWNER o EX 30", "LOCK b"}, []string{"LOCK b BLOCK 0", "LOCK a BLOCK 0"}, ""},
		"two proxies":         {[]string{"LOCK a", "", "LOCK b"}, []string{"LOCK b BLOCK 0", "", "LOCK a BLOCK 0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var clients []*harness.Wire
			for _, p := range []*harness.Proxy{first, first, second, first} {
				clients = append(clients, harness.Dial(t, p.Addr()))
			}
			n++ // each has locks of its own: what the clients of the one before leave behind is in nobody's way
			own := func(call string) []string {
				words := strings.Fields(call)
				for i, word := range words {
					if strings.Contains("abc", word) {
						words[i] = fmt.Sprint(word, n)
					}
				}
				return words
			}
			for i, call := range c.hold {
				if call != "" {
					harness.Expect(t, clients[i], ok, own(call)...)
				}
			}
			last := len(c.wait) - 1
			for i, call := range c.wait[:last] {
				if call != "" {
					clients[i].Send(own(call)...)
					look := harness.Dial(t, first.Addr())
					key := own(call)[1]
					harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, look, key) > 0 })
				}
			}
			clients[last].Send(own(c.wait[last])...)
			if c.want == "" {
				if !clients[last].Silent(time.Second) {
					t.Fatalf("it is told %q", clients[last].Read())
				}
				return
			}
			began := time.Now()
			if got := clients[last].Read(); !strings.HasPrefix(got, c.want) {
				t.Fatalf("it is told %q", got)
			} else if c.want == deadlock {
				t.Logf("after %v: %s", time.Since(began).Round(10*time.Microsecond), got)
				if time.Since(began) > harness.Bound(time.Second) {
					t.Error("too late")
				}
				// What it holds stays, and to give it back is the way out.
				harness.Expect(t, clients[last], yes, "UNLOCK", own(c.hold[last])[1])
				if got := clients[last-1-strings.Count(strings.Join(c.wait, ","), ",,")].Read(); got != ok {
					t.Errorf("the one before gets %q", got)
				}
			}
		})
	}
}
