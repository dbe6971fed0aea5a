package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// decode turns a raw reply into Go values: string, int64, nil, []any, and map[string]any for RESP3's maps.
func decode(t testing.TB, raw string) any {
	t.Helper()
	v, rest := decodeNext(t, raw)
	if rest != "" {
		t.Fatalf("more than one frame: %q", raw)
	}
	return v
}

func decodeNext(t testing.TB, raw string) (v any, rest string) {
	t.Helper()
	line, rest, _ := strings.Cut(raw, "\r\n")
	n, _ := strconv.ParseInt(line[1:], 10, 64)
	switch line[0] {
	case '+':
		return line[1:], rest
	case ':':
		return n, rest
	case '_':
		return nil, rest
	case '$':
		if n < 0 {
			return nil, rest
		}
		return rest[:n], rest[n+2:]
	case '*':
		list := []any{}
		for range n {
			v, rest = decodeNext(t, rest)
			list = append(list, v)
		}
		return list, rest
	case '%':
		m := map[string]any{}
		for range n {
			var k any
			k, rest = decodeNext(t, rest)
			m[fmt.Sprint(k)], rest = decodeNext(t, rest)
		}
		return m, rest
	}
	t.Fatalf("unexpected in this reply: %q", raw)
	return nil, ""
}

// object reads a map of either version: RESP2 has it as a flat array. A list of maps is told by the caller.
func object(t testing.TB, v any) map[string]any {
	t.Helper()
	if m, ok := v.(map[string]any); ok {
		return m
	}
	list, ok := v.([]any)
	if !ok || len(list)%2 != 0 {
		t.Fatalf("%v is no map", v)
	}
	m := map[string]any{}
	for i := 0; i < len(list); i += 2 {
		m[list[i].(string)] = list[i+1]
	}
	return m
}

func objects(t testing.TB, v any) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, e := range v.([]any) {
		out = append(out, object(t, e))
	}
	return out
}

// expectFields compares; a want of int64(-100) stands for any number from 0 on, and every field must be named.
func expectFields(t testing.TB, got map[string]any, want map[string]any) {
	t.Helper()
	for name, v := range got {
		w, ok := want[name]
		n, isNumber := v.(int64)
		if !ok || w == any(int64(-100)) && (!isNumber || n < 0) || w != any(int64(-100)) && w != v {
			t.Errorf("field %s is %v, want %v", name, v, w)
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("field %s is missing", name)
		}
	}
}

const anyNumber = int64(-100)

func both(t *testing.T, f func(t *testing.T, connect func(testing.TB, string) *wire)) {
	t.Run("RESP2", func(t *testing.T) { f(t, dial) })
	t.Run("RESP3", func(t *testing.T) { f(t, dial3) })
}

func clientID(t testing.TB, w *wire) int64 { return number(t, w.do("CLIENT", "ID")) }

func TestLockInfo(t *testing.T) {
	both(t, func(t *testing.T, connect func(testing.TB, string) *wire) {
		stores(t, func(t *testing.T, upstream string) {
			p := startProxy(t, upstream)
			w, asker := dial(t, p.Addr()), connect(t, p.Addr())
			info := func(key string) map[string]any {
				t.Helper()
				raw := asker.do("LOCKINFO", key)
				if first := raw[0]; first != '%' && first != '*' {
					t.Fatalf("LOCKINFO %s: %q", key, raw)
				}
				m := object(t, decode(t, raw))
				m["waiting"] = fmt.Sprint(object(t, m["waiting"]))
				return m
			}
			free := info("free")
			if len(free["holders"].([]any)) != 0 {
				t.Errorf("holders of a free lock: %v", free["holders"])
			}
			delete(free, "holders")
			expectFields(t, free, map[string]any{"kind": "none", "ttl-ms": int64(-2), "waiting": "map[here:0 queue:0]", "fence": nil})

			expect(t, w, "+OK\r\n", "CLIENT", "SETNAME", "worker")
			token := number(t, w.do("LOCK", "k", "FENCE"))
			expect(t, w, "+OK\r\n", "LOCK", "k")
			waiters := []*wire{dial(t, p.Addr()), dial(t, p.Addr())}
			for _, v := range waiters {
				v.send("LOCK", "k", "BLOCK", "0")
			}
			eventually(t, "two wait", func() bool { return waitingHere(t, w, "k") == 2 })
			held := info("k")
			holders := objects(t, held["holders"])
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
			expectFields(t, holders[0], map[string]any{"owner": owner, "holds": int64(2), "client-id": clientID(t, w), "addr": w.c.LocalAddr().String(),
				"name": "worker", "held-ms": anyNumber, "watched": int64(1), "renewed-ms-ago": int64(-1)})
			for _, v := range waiters {
				v.close()
			}
			eventually(t, "nobody waits", func() bool { return waitingHere(t, w, "k") == 0 })

			expect(t, w, "+OK\r\n", "LOCK", "e", "OWNER", "me", "EX", "100")
			e := info("e")
			expectFields(t, objects(t, e["holders"])[0], map[string]any{"owner": "me", "holds": int64(1), "client-id": clientID(t, w),
				"addr": w.c.LocalAddr().String(), "name": "worker", "held-ms": anyNumber, "watched": int64(0), "renewed-ms-ago": int64(-1)})
			w.do("SET", "text", "x")
			if got := info("text")["kind"]; got != "other" {
				t.Errorf("kind of a string: %v", got)
			}
		})
	})
}

// Holders elsewhere are told with what Redis knows; a renewal shows.
func TestLockInfoElsewhere(t *testing.T) {
	s := testredis.Start(t)
	p, other := startProxy(t, s.URL(), "--lock-watchdog-timeout", "600ms"), startProxy(t, s.URL())
	w, asker := dial(t, p.Addr()), dial3(t, other.Addr())
	expect(t, w, "+OK\r\n", "LOCK", "k")
	m := object(t, decode(t, asker.do("LOCKINFO", "k")))
	expectFields(t, objects(t, m["holders"])[0], map[string]any{"owner": onlyOwner(t, s, "k"), "holds": int64(1)})
	eventually(t, "a renewal", func() bool {
		h := objects(t, object(t, decode(t, w.do("LOCKINFO", "k")))["holders"])
		ago, _ := h[0]["renewed-ms-ago"].(int64)
		return ago >= 0
	})
	// Redisson's read/write lock and fair queue, made past the proxy.
	s.Do(t, "HSET", "rw", "mode", "read", "0f8fad5b-d9cb-469f-a165-70867728950e:52", "3")
	s.Do(t, "SET", "{rw}:0f8fad5b-d9cb-469f-a165-70867728950e:52:rwlock_timeout:3", "1")
	s.Do(t, "PEXPIRE", "{rw}:0f8fad5b-d9cb-469f-a165-70867728950e:52:rwlock_timeout:3", 30000)
	s.Do(t, "RPUSH", "redisson_lock_queue:{k}", "a", "b", "c")
	s.Do(t, "SET", "redisson_lock_token:{k}", "17")
	m = object(t, decode(t, asker.do("LOCKINFO", "rw")))
	if m["kind"] != "read" || m["ttl-ms"] != int64(-1) {
		t.Errorf("LOCKINFO rw: %v", m)
	}
	expectFields(t, objects(t, m["holders"])[0], map[string]any{"owner": "0f8fad5b-d9cb-469f-a165-70867728950e:52", "kind": "read", "holds": int64(3)})
	m = object(t, decode(t, asker.do("LOCKINFO", "k")))
	if m["fence"] != int64(17) || object(t, m["waiting"])["queue"] != int64(3) {
		t.Errorf("LOCKINFO k: %v", m)
	}
}

func TestLockList(t *testing.T) {
	both(t, func(t *testing.T, connect func(testing.TB, string) *wire) {
		stores(t, func(t *testing.T, upstream string) {
			p := startProxy(t, upstream)
			w, waiter, asker := dial(t, p.Addr()), dial(t, p.Addr()), connect(t, p.Addr())
			expect(t, asker, "*0\r\n", "LOCKLIST")
			expect(t, w, "+OK\r\n", "CLIENT", "SETNAME", "worker")
			expect(t, w, "+OK\r\n", "LOCK", "app:1")
			expect(t, w, "+OK\r\n", "LOCK", "app:2", "OWNER", "me", "EX", "100")
			expect(t, w, "+OK\r\n", "SELECT", "3")
			expect(t, w, "+OK\r\n", "LOCK", "else")
			waiter.send("LOCK", "app:1", "BLOCK", "0", "OWNER", "me")
			eventually(t, "it waits", func() bool { return waitingHere(t, asker, "app:1") == 1 })

			list := func(args ...string) []map[string]any {
				t.Helper()
				return objects(t, decode(t, asker.do(append([]string{"LOCKLIST"}, args...)...)))
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
				return map[string]any{"key": key, "db": db, "kind": "plain", "owner": owner, "client-id": id, "addr": w.c.LocalAddr().String(), "name": "worker",
					"state": "held", "held-ms": anyNumber, "holds": int64(1), "ttl-ms": anyNumber, "watched": watched, "renewed-ms-ago": int64(-1)}
			}
			expectFields(t, all[0], held("app:1", 0, self, 1))
			addr := waiter.c.LocalAddr().String()
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
			waiter.reset()
			eventually(t, "the waiter that has gone is no longer listed", func() bool { return len(list()) == 3 })
			w.reset()
			eventually(t, "only the owner that outlives its connection is listed", func() bool { return len(list()) == 1 })
			expectFields(t, list()[0], map[string]any{"key": "app:2", "db": int64(0), "kind": "plain", "owner": "me", "client-id": int64(0), "addr": "", "name": "",
				"state": "held", "held-ms": anyNumber, "holds": int64(1), "ttl-ms": anyNumber, "watched": int64(0), "renewed-ms-ago": int64(-1)})
		})
	})
}
