package locks

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// expectFields compares; a want of int64(-100) stands for any number from 0 on, and every field must be named.
func expectFields(t testing.TB, got map[string]any, want map[string]any) {
	t.Helper()
	for name, v := range got {
		w, ok := want[name]
		n, isNumber := v.(int64)
		right := ok && w == v
		switch w {
		case anyNumber:
			right = isNumber && n >= 0
		case perhapsRenewed:
			right = isNumber && n >= -1
		}
		if !right {
			t.Errorf("field %s is %v, want %v", name, v, w)
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("field %s is missing", name)
		}
	}
}

const (
	anyNumber = int64(-100)
	// perhapsRenewed is the time since the renewal of a lock that is renewed: when the first connection for messages comes after a LOCK, all
	// locks are checked then, and renewed.
	perhapsRenewed = int64(-101)
)

func both(t *testing.T, f func(t *testing.T, connect func(testing.TB, string) *harness.Wire)) {
	t.Run("RESP2", func(t *testing.T) { f(t, harness.Dial) })
	t.Run("RESP3", func(t *testing.T) { f(t, harness.Dial3) })
}

func clientID(t testing.TB, w *harness.Wire) int64 { return harness.Number(t, w.Do("CLIENT", "ID")) }

func TestLockInfo(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, connect func(testing.TB, string) *harness.Wire) {
		stores(t, func(t *testing.T, upstream string) {
			p := harness.StartProxy(t, upstream)
			w, asker := harness.Dial(t, p.Addr()), connect(t, p.Addr())
			info := func(key string) map[string]any {
				t.Helper()
				raw := asker.Do("LOCKINFO", key)
				if first := raw[0]; first != '%' && first != '*' {
					t.Fatalf("LOCKINFO %s: %q", key, raw)
				}
				m := harness.Object(t, harness.Decode(t, raw))
				m["waiting"] = fmt.Sprint(harness.Object(t, m["waiting"]))
				return m
			}
			free := info("free")
			if len(free["holders"].([]any)) != 0 {
				t.Errorf("holders of a free lock: %v", free["holders"])
			}
			delete(free, "holders")
			expectFields(t, free, map[string]any{"kind": "none", "ttl-ms": int64(-2), "waiting": "map[here:0 queue:0]", "fence": nil})

			harness.Expect(t, w, "+OK\r\n", "CLIENT", "SETNAME", "worker")
			token := harness.Number(t, w.Do("LOCK", "k", "FENCE"))
			harness.Expect(t, w, "+OK\r\n", "LOCK", "k")
			waiters := []*harness.Wire{harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())}
			for _, v := range waiters {
				v.Send("LOCK", "k", "BLOCK", "0")
			}
			harness.Eventually(t, "two wait", func() bool { return harness.WaitingHere(t, w, "k") == 2 })
			held := info("k")
			holders := harness.Objects(t, held["holders"])
			delete(held, "holders")
			expectFields(t, held, map[string]any{"kind": "plain", "ttl-ms": anyNumber, "waiting": "map[here:2 queue:0]", "fence": token})
			if left := held["ttl-ms"].(int64); left <= 0 || left > 30000 {
				t.Errorf("ttl-ms %d", left)
			}
			if len(holders) != 1 {
				t.Fatalf("holders %v", holders)
			}
			owner, _ := holders[0]["owner"].(string)
			if !implicitOwner.MatchString(owner) {
				t.Errorf("owner %q", owner)
			}
			expectFields(t, holders[0], map[string]any{"owner": owner, "holds": int64(2), "client-id": clientID(t, w), "addr": w.C.LocalAddr().String(),
				"name": "worker", "held-ms": anyNumber, "watched": int64(1), "renewed-ms-ago": perhapsRenewed})
			for _, v := range waiters {
				v.Close()
			}
			harness.Eventually(t, "nobody waits", func() bool { return harness.WaitingHere(t, w, "k") == 0 })

			harness.Expect(t, w, "+OK\r\n", "LOCK", "e", "OWNER", "me", "EX", "100")
			e := info("e")
			expectFields(t, harness.Objects(t, e["holders"])[0], map[string]any{"owner": "me", "holds": int64(1), "client-id": clientID(t, w),
				"addr": w.C.LocalAddr().String(), "name": "worker", "held-ms": anyNumber, "watched": int64(0), "renewed-ms-ago": int64(-1)})
			w.Do("SET", "text", "x")
			if got := info("text")["kind"]; got != "other" {
				t.Errorf("kind of a string: %v", got)
			}
		})
	})
}

// Holders elsewhere are told with what Redis knows; a renewal shows.
func TestLockInfoElsewhere(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p, other := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "6s"), harness.StartProxy(t, s.URL())
	w, asker := harness.Dial(t, p.Addr()), harness.Dial3(t, other.Addr())
	harness.Expect(t, w, "+OK\r\n", "LOCK", "k")
	host, _ := os.Hostname()
	m := harness.Object(t, harness.Decode(t, asker.Do("LOCKINFO", "k")))
	expectFields(t, harness.Objects(t, m["holders"])[0], map[string]any{"owner": onlyOwner(t, s, "k"), "holds": int64(1), "proxy": host})
	harness.Eventually(t, "a renewal", func() bool {
		h := harness.Objects(t, harness.Object(t, harness.Decode(t, w.Do("LOCKINFO", "k")))["holders"])
		ago, _ := h[0]["renewed-ms-ago"].(int64)
		return ago >= 0
	})
	// Redisson's read/write lock and fair queue, made past the proxy.
	s.Do(t, "HSET", "rw", "mode", "read", "0f8fad5b-d9cb-469f-a165-70867728950e:52", "3")
	s.Do(t, "SET", "{rw}:0f8fad5b-d9cb-469f-a165-70867728950e:52:rwlock_timeout:3", "1")
	s.Do(t, "PEXPIRE", "{rw}:0f8fad5b-d9cb-469f-a165-70867728950e:52:rwlock_timeout:3", 30000)
	s.Do(t, "RPUSH", "redisson_lock_queue:{k}", "a", "b", "c")
	s.Do(t, "SET", "redisson_lock_token:{k}", "17")
	m = harness.Object(t, harness.Decode(t, asker.Do("LOCKINFO", "rw")))
	if m["kind"] != "read" || m["ttl-ms"] != int64(-1) {
		t.Errorf("LOCKINFO rw: %v", m)
	}
	expectFields(t, harness.Objects(t, m["holders"])[0], map[string]any{"owner": "0f8fad5b-d9cb-469f-a165-70867728950e:52", "kind": "read", "holds": int64(3),
		"redisson": "0f8fad5b-d9cb-469f-a165-70867728950e", "thread": "52"})
	m = harness.Object(t, harness.Decode(t, asker.Do("LOCKINFO", "k")))
	if m["fence"] != int64(17) || harness.Object(t, m["waiting"])["queue"] != int64(3) {
		t.Errorf("LOCKINFO k: %v", m)
	}
}

func TestLockList(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, connect func(testing.TB, string) *harness.Wire) {
		stores(t, func(t *testing.T, upstream string) {
			p := harness.StartProxy(t, upstream)
			w, waiter, asker := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr()), connect(t, p.Addr())
			harness.Expect(t, asker, "*0\r\n", "LOCKLIST")
			harness.Expect(t, w, "+OK\r\n", "CLIENT", "SETNAME", "worker")
			harness.Expect(t, w, "+OK\r\n", "LOCK", "app:1")
			harness.Expect(t, w, "+OK\r\n", "LOCK", "app:2", "OWNER", "me", "EX", "100")
			harness.Expect(t, w, "+OK\r\n", "SELECT", "3")
			harness.Expect(t, w, "+OK\r\n", "LOCK", "else")
			waiter.Send("LOCK", "app:1", "BLOCK", "0", "OWNER", "me", "EX", "30")
			harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, asker, "app:1") == 1 })

			list := func(args ...string) []map[string]any {
				t.Helper()
				return harness.Objects(t, harness.Decode(t, asker.Do(append([]string{"LOCKLIST"}, args...)...)))
			}
			all := list()
			if len(all) != 4 {
				t.Fatalf("LOCKLIST: %v", all)
			}
			id := clientID(t, w)
			self, _ := all[0]["owner"].(string)
			if !implicitOwner.MatchString(self) {
				t.Errorf("owner %q", self)
			}
			held := func(key string, db int64, owner string, watched int64) map[string]any {
				renewed := int64(-1)
				if watched == 1 {
					renewed = perhapsRenewed
				}
				return map[string]any{"key": key, "db": db, "kind": "plain", "owner": owner, "client-id": id, "addr": w.C.LocalAddr().String(), "name": "worker",
					"state": "held", "held-ms": anyNumber, "holds": int64(1), "ttl-ms": anyNumber, "watched": watched, "renewed-ms-ago": renewed}
			}
			expectFields(t, all[0], held("app:1", 0, self, 1))
			addr := waiter.C.LocalAddr().String()
			expectFields(t, all[1], map[string]any{"key": "app:1", "db": int64(0), "kind": "plain", "owner": "me", "client-id": all[1]["client-id"],
				"addr": addr, "name": "", "state": "waiting", "waiting-ms": anyNumber})
			expectFields(t, all[2], held("app:2", 0, "me", 0))
			expectFields(t, all[3], held("else", 3, self, 1))

			for _, c := range []struct{ filter, want string }{
				{"MATCH app:*", "app:1 app:1 app:2"}, {"MATCH *2", "app:2"}, {"MATCH [ae]*e", "else"}, {"MATCH app:?", "app:1 app:1 app:2"}, {"MATCH none", ""},
				{"OWNER me", "app:1 app:2"}, {"OWNER me MATCH *1", "app:1"}, {"match *1 owner me", "app:1"}, {"OWNER " + self, "app:1 else"}, {"OWNER nobody", ""},
			} {
				var got []string
				for _, e := range list(strings.Split(c.filter, " ")...) {
					got = append(got, e["key"].(string))
				}
				if !slices.Equal(got, strings.Fields(c.want)) {
					t.Errorf("LOCKLIST %s: %q, want %q", c.filter, got, c.want)
				}
			}
			waiter.Reset()
			harness.Eventually(t, "the waiter that has gone is no longer listed", func() bool { return len(list()) == 3 })
			w.Reset()
			harness.Eventually(t, "only the owner that outlives its connection is listed", func() bool { return len(list()) == 1 })
			expectFields(t, list()[0], held("app:2", 0, "me", 0)) // with the connection that named it, which has gone
		})
	})
}
