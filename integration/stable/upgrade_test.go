package stable

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// versions are a proxy of the last version and one of this tree before one Redis, each way round.
type versions struct {
	t           *testing.T
	from, to    *harness.Proxy
	admin       map[*harness.Proxy]string
	hold, other *harness.Wire // clients of from and to
}

// A waiter that nobody wakes waits for longer than any test: it looks again by itself when wait-poll or the holder's lease is over.
var upgradeFlags = []string{"--wait-poll", "10m", "--lock-watchdog-timeout", "10m", "--operators", "default", "--drain-timeout", "1m"}

// eachWay runs f with the last version as from and this one as to, and the other way round.
func eachWay(t *testing.T, f func(t *testing.T, v *versions)) {
	last := harness.LastVersion(t)
	for _, forward := range []bool{true, false} {
		t.Run(map[bool]string{true: "from the last version", false: "to the last version"}[forward], func(t *testing.T) {
			t.Parallel()
			server, v := testredis.Start(t), &versions{t: t, admin: map[*harness.Proxy]string{}}
			start := func(old bool) *harness.Proxy {
				at := net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
				args := append([]string{"--admin-listen", at}, upgradeFlags...)
				binary := harness.Binary(t)
				if old {
					binary = last.Binary
				}
				p := harness.StartBinary(t, binary, server.URL(), args...)
				v.admin[p] = at
				p.AwaitProbe(1)
				return p
			}
			v.from, v.to = start(forward), start(!forward)
			v.hold, v.other = harness.DialHearing(t, v.from.Addr()), harness.Dial3(t, v.to.Addr())
			f(t, v)
		})
	}
}

// expect says a command and compares the beginning of its reply.
func expect(w *harness.Wire, want string, call string) {
	w.T.Helper()
	if got := w.Do(strings.Fields(call)...); !strings.HasPrefix(got, want) {
		w.T.Errorf("%s: %q, want %q", call, got, want)
	}
}

// kinds are locks of each kind: how one takes it, gives it back, and what another asks for meanwhile and gives back.
var kinds = []struct{ take, give, want, end string }{
	{"LOCK k", "UNLOCK k", "LOCK k", "UNLOCK k"},
	{"LOCK k", "UNLOCK k", "LOCK k OWNER o EX 600", "UNLOCK k OWNER o"},
	{"LOCK k OWNER o EX 600", "UNLOCK k OWNER o", "LOCK k FENCE", "UNLOCK k"},
	{"FAIRLOCK k", "UNLOCK k", "FAIRLOCK k", "UNLOCK k"},
	{"LOCK k", "UNLOCK k", "FAIRLOCK k", "UNLOCK k"},
	{"RLOCK k", "UNLOCK k", "WLOCK k", "UNLOCK k"},
	{"WLOCK k", "UNLOCK k", "RLOCK k", "UNLOCK k"},
	{"RLOCK k OWNER o EX 600", "UNLOCK k OWNER o READ", "WLOCK k OWNER p EX 600", "UNLOCK k OWNER p WRITE"},
	{"LOCK k LIMIT 1", "UNLOCK k", "LOCK k LIMIT 1", "UNLOCK k"},
	{"LOCK k LIMIT 1 OWNER o EX 600", "UNLOCK k OWNER o", "LOCK k LIMIT 1", "UNLOCK k"},
	{"MULTILOCK 2 k l", "MULTIUNLOCK 2 k l", "MULTILOCK 2 l m", "MULTIUNLOCK 2 l m"},
}

// waits has a client ask for a lock that is held and waits until its proxy says that it waits.
func (v *versions) waits(p *harness.Proxy, call string) *harness.Wire {
	v.t.Helper()
	w := harness.Dial(v.t, p.Addr())
	w.Send(append(strings.Fields(call), "BLOCK", "0")...)
	harness.Eventually(v.t, "it waits", func() bool {
		return strings.Contains(harness.Dial(v.t, p.Addr()).Do("LOCKPROXY", "WAITERS"), w.C.LocalAddr().String())
	})
	return w
}

// What one has the other's clients do not get, whoever of both is older, and those who wait are woken when it is given back.
func TestUpgradeLocks(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, v *versions) {
		for i, c := range kinds {
			for _, call := range []*string{&c.take, &c.give, &c.want, &c.end} { // each kind has names of its own
				*call = strings.NewReplacer(" k", fmt.Sprint(" k", i), " l", fmt.Sprint(" l", i), " m", fmt.Sprint(" m", i)).Replace(*call)
			}
			expect(v.hold, "+OK", c.take)
			expect(v.other, "_", c.want)
			w := v.waits(v.to, c.want)
			v.hold.Do(strings.Fields(c.give)...)
			if got, err := w.TryRead(harness.Patience); err != nil || got[0] != '+' && got[0] != ':' {
				t.Fatalf("%s after %s: %q, %v", c.want, c.give, got, err)
			}
			if got := w.Do(strings.Fields(c.end)...); got[0] != ':' {
				t.Errorf("%s: %q", c.end, got)
			}
		}
		expect(v.hold, "+OK", "RLOCK shared")
		expect(v.other, "+OK", "RLOCK shared")
		expect(v.hold, "+OK", "LOCK two LIMIT 2")
		expect(v.other, "+OK", "LOCK two LIMIT 2")
		expect(harness.Dial3(t, v.to.Addr()), "_", "LOCK two LIMIT 2")
		expect(v.hold, "+OK", "LOCK kind")
		expect(v.other, "-LOCKKIND", "RLOCK kind")
	})
}

// A named owner says LOCK at one and all else at the other; tokens rise.
func TestUpgradeOwners(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, v *versions) {
		first := harness.Number(t, v.hold.Do("LOCK", "k", "OWNER", "o", "EX", "600", "FENCE"))
		expect(v.other, ":1", "RENEW k OWNER o EX 700")
		expect(v.other, "+OK", "FENCED k OWNER o SET data 1")
		expect(v.other, "-NOTHELD", "FENCED k OWNER p SET data 2")
		if second := harness.Number(t, v.other.Do("LOCK", "k", "OWNER", "o", "EX", "600", "FENCE")); second <= first {
			t.Errorf("the token %d comes after %d", second, first)
		}
		expect(v.other, ":1", "UNLOCK k OWNER o")
		expect(v.hold, "-NOTHELD", "UNLOCK k OWNER o")
	})
}

// A lock that clients of both wait for goes to each of them once, with FAIRLOCK in the order in which they came.
func TestUpgradeHandoffs(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, v *versions) {
		for _, verb := range []string{"LOCK", "FAIRLOCK"} {
			key := "of " + verb
			harness.Expect(t, v.hold, "+OK\r\n", verb, key)
			granted := make(chan int, 6)
			var work sync.WaitGroup
			for i := range cap(granted) {
				w := harness.Dial(t, map[int]*harness.Proxy{0: v.from, 1: v.to}[i%2].Addr())
				w.Send(verb, key, "BLOCK", "0")
				harness.Eventually(t, "it waits", func() bool {
					if verb == "LOCK" {
						return harness.WaitingHere(t, v.hold, key)+harness.WaitingHere(t, v.other, key) == i+1
					}
					info := harness.Object(t, harness.Decode(t, v.other.Do("LOCKINFO", key)))
					return harness.Object(t, info["waiting"])["queue"] == int64(i+1)
				})
				work.Go(func() {
					if got, err := w.TryRead(harness.Patience); got != "+OK\r\n" {
						t.Errorf("%s: number %d is answered %q, %v", verb, i, got, err)
						return
					}
					granted <- i
					if got, err := w.Try("UNLOCK", key); got != ":1\r\n" {
						t.Errorf("UNLOCK: %q, %v", got, err)
					}
				})
			}
			harness.Expect(t, v.hold, ":1\r\n", "UNLOCK", key)
			work.Wait()
			close(granted)
			next := 0
			for i := range granted {
				if i != next && verb == "FAIRLOCK" {
					t.Errorf("%s: number %d comes where %d is next", verb, i, next)
				}
				next++
			}
		}
	})
}

// A force at one is told at the other, which each shows beside itself.
func TestUpgradeOperators(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, v *versions) {
		expect(v.hold, "+OK", "LOCK k")
		expect(v.other, ":1", "UNLOCK k FORCE")
		expect(v.other, "+OK", "LOCK k")
		if got := v.hold.Do("UNLOCK", "k"); strings.HasPrefix(got, ":") {
			t.Errorf("UNLOCK after a force: %q", got)
		}
		for p, at := range v.admin {
			harness.Eventually(t, "both are shown", func() bool {
				resp, err := http.Get("http://" + at + "/proxies.json")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				var shown struct {
					Proxies []struct{ ID, State, Version string }
				}
				if err := json.NewDecoder(resp.Body).Decode(&shown); err != nil {
					t.Fatal(err)
				}
				states := map[string]int{}
				for _, one := range shown.Proxies {
					states[one.State]++
				}
				return states["self"] == 1 && states["up"] == 1
			})
			w := harness.Dial3(t, p.Addr())
			harness.Eventually(t, "its locks are shown", func() bool {
				return strings.Contains(w.Do("LOCKPROXY", "LOCKS", "100", "ALL"), v.other.C.LocalAddr().String())
			})
		}
	})
}

// moving are clients that go to the second proxy when the first does not serve them any more, and count what they do under a lock.
type moving struct {
	addrs  []string
	inside sync.Mutex // TryLock fails when two have the lock
	done   [2]atomic.Int64
}

// run is one of them.
func (m *moving) run(t *testing.T, stop <-chan struct{}) {
	var c redis.Conn
	at := 0
	move := func() {
		if c != nil {
			c.Close()
		}
		c, at = nil, 1
	}
	defer move()
	for {
		select {
		case <-stop:
			return
		default:
		}
		if c == nil {
			var err error
			if c, err = redis.Dial("tcp", m.addrs[at]); err != nil {
				move()
				continue
			}
		}
		got, err := redis.DoWithTimeout(c, harness.Patience, "LOCK", "counted", "BLOCK", "1000")
		switch {
		case err != nil: // the connection has ended, or the proxy drains
			if at == 1 {
				t.Errorf("the proxy that stays answers %v", err)
				return
			}
			move()
			continue
		case got == nil:
			continue
		}
		if !m.inside.TryLock() {
			t.Error("a lock is held twice")
			return
		}
		m.inside.Unlock()
		if got, err := redis.Int(c.Do("UNLOCK", "counted")); err != nil || got != 1 {
			t.Errorf("UNLOCK: %d, %v", got, err)
			return
		}
		m.done[at].Add(1)
	}
}

// One drains while its clients go over to the other: no lock is held twice, a holder keeps its lock until it gives it back, and then it is
// the other's.
func TestUpgradeDrains(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, v *versions) {
		m, stop := &moving{addrs: []string{v.from.Addr(), v.to.Addr()}}, make(chan struct{})
		var work sync.WaitGroup
		defer work.Wait()
		end := sync.OnceFunc(func() { close(stop) })
		defer end()
		for range 10 {
			work.Go(func() { m.run(t, stop) })
		}
		expect(v.hold, "+OK", "LOCK kept")
		next := v.waits(v.to, "LOCK kept")
		harness.Eventually(t, "the clients of the first have locks", func() bool { return m.done[0].Load() > 50 })
		v.from.Signal(syscall.SIGTERM)
		harness.Eventually(t, "the clients have gone over", func() bool { return m.done[1].Load() > 200 })
		expect(v.hold, ":1", "RENEW kept")
		expect(v.hold, ":1", "UNLOCK kept")
		if got := next.Read(); got != "+OK\r\n" {
			t.Errorf("who waits at the other is answered %q", got)
		}
		if code := v.from.Exit(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		end()
	})
}

// A binary that was built from a clone, without any flag, says which version and which commit it is of.
func TestUpgradeVersion(t *testing.T) {
	t.Parallel()
	last := harness.LastVersion(t)
	said, err := exec.Command(last.Binary, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := last.Name
	if want == last.Commit { // no tag: the go command makes up a version
		want = "v0.0.0-"
	}
	if text := string(said); !strings.HasPrefix(text, "lockproxy "+want) || !strings.Contains(text, "commit "+last.Commit+", go1.") {
		t.Errorf("%s (%s) says %s", last.Name, last.Commit, said)
	}
}
