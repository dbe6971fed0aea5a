package locks

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Whose connection holds a lock, or waits for it, is shown to users who may run CLIENT LIST, and to no others.
func TestWhoIsShownOtherClients(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	for user, rules := range map[string][]string{
		"plain": {"+@read", "+@write"}, "watcher": {"+@read", "+client|list"}, "admin": {"+@all"},
	} {
		words := []any{"ACL", "SETUSER", user, "on", ">p", "~app:*"}
		for _, rule := range rules {
			words = append(words, rule)
		}
		s.Do(t, words...)
	}
	p := harness.StartProxy(t, s.URL())
	holder, waiter := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, holder, "+OK\r\n", "CLIENT", "SETNAME", "payroll")
	harness.Expect(t, waiter, "+OK\r\n", "CLIENT", "SETNAME", "backup")
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "app:1")
	waiter.Send("LOCK", "app:1", "BLOCK", "0")
	harness.Eventually(t, "it waits", func() bool { return strings.Contains(holder.Do("LOCKLIST"), "waiting-ms") })
	secrets := []string{"payroll", "backup", "client-id", "addr", holder.C.LocalAddr().String(), waiter.C.LocalAddr().String()}
	for user, sees := range map[string]bool{"plain": false, "watcher": true, "admin": true} {
		for _, proto := range []string{"2", "3"} {
			w := harness.Dial(t, p.Addr())
			w.Do("HELLO", proto, "AUTH", user, "p")
			if list := w.Do("CLIENT", "LIST"); strings.HasPrefix(list, "-NOPERM") == sees {
				t.Fatalf("%s: CLIENT LIST: %q", user, list)
			}
			list, info := w.Do("LOCKLIST"), w.Do("LOCKINFO", "app:1")
			entries, holders := harness.Objects(t, harness.Decode(t, list)), harness.Objects(t, harness.Object(t, harness.Decode(t, info))["holders"])
			if len(entries) != 2 || entries[0]["state"] != "held" || entries[1]["state"] != "waiting" || len(holders) != 1 || holders[0]["watched"] == nil {
				t.Errorf("%s: %q %q", user, list, info)
			}
			for _, secret := range secrets {
				if strings.Contains(list, secret) != sees {
					t.Errorf("%s, RESP%s: %q in LOCKLIST: %v", user, proto, secret, !sees)
				}
			}
			if strings.Contains(info, "payroll") != sees || strings.Contains(info, holder.C.LocalAddr().String()) != sees {
				t.Errorf("%s, RESP%s: LOCKINFO: %q", user, proto, info)
			}
		}
	}
	s.Do(t, "ACL", "SETUSER", "elsewhere", "on", ">p", "~else:*", "+@all")
	stranger := harness.Dial(t, p.Addr())
	harness.Expect(t, stranger, "+OK\r\n", "AUTH", "elsewhere", "p")
	harness.Expect(t, stranger, "*0\r\n", "LOCKLIST")
	harness.Expect(t, holder, ":1\r\n", "UNLOCK", "app:1")
	if got := waiter.Read(); got != "+OK\r\n" {
		t.Error(got)
	}
}

// UNLOCK … FORCE frees others' locks, and needs the right to delete the key.
func TestWhoMayForce(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	for user, rules := range map[string][]any{
		"worker": {"~app:*", "+@all", "-del"}, "operator": {"~app:1", "+@all"}, "stranger": {"~other:*", "+@all"}, "without": {"~app:*", "+@all", "-multi"},
		"selector": {"~app:*", "+@all", "-del", "(~tmp:* ~app:1:* +del)"}, "selects": {"~app:*", "+@all", "-del", "(~app:1 +del)"},
	} {
		s.Do(t, append([]any{"ACL", "SETUSER", user, "on", ">p"}, rules...)...)
	}
	p := harness.StartProxy(t, s.URL())
	as := func(user string) *harness.Wire {
		w := harness.Dial(t, p.Addr())
		harness.Expect(t, w, "+OK\r\n", "AUTH", user, "p")
		return w
	}
	holder, worker := harness.Dial(t, p.Addr()), as("worker")
	granted := []*harness.Wire{as("operator"), as("selects")}
	for i := range 4 { // the later answers may be remembered
		harness.Expect(t, holder, "+OK\r\n", "LOCK", "app:1")
		for _, user := range []string{"worker", "stranger", "selector", "without"} {
			if got := as(user).Do("UNLOCK", "app:1", "FORCE"); !strings.HasPrefix(got, "-NOPERM ") {
				t.Errorf("FORCE without the right to DEL, by %s: %q", user, got)
			}
		}
		if !exists(t, s, "app:1") {
			t.Error("it was freed")
		}
		harness.Expect(t, granted[i%2], ":1\r\n", "UNLOCK", "app:1", "FORCE")
		harness.Eventually(t, "the loss is known", func() bool { return strings.HasPrefix(holder.Do("UNLOCK", "app:1"), "-LOCKLOST") })
	}
	harness.Expect(t, worker, "+OK\r\n", "LOCK", "app:2")
	harness.Expect(t, worker, ":1\r\n", "UNLOCK", "app:2")
}

// A connection gives back its own holds whatever its user may do by then, and what Redis refuses it is renewed no more. For a named owner's it
// needs the right to the key.
func TestUnlockNeedsNoRight(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "worker", "on", ">p", "~app:*", "+@all")
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "3s")
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "AUTH", "worker", "p")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "app:1")
	harness.Expect(t, w, "+OK\r\n", "MULTILOCK", "2", "app:2", "app:3")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "app:4", "OWNER", "me", "EX", "30")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "app:5")
	s.Do(t, "ACL", "SETUSER", "worker", "resetkeys", "~none")
	harness.Eventually(t, "the rights have gone", func() bool { return strings.HasPrefix(w.Do("UNLOCK", "app:4", "OWNER", "me"), "-NOPERM ") })
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "app:1")
	harness.Expect(t, w, ":2\r\n", "MULTIUNLOCK", "2", "app:2", "app:3")
	s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	if got := w.Do("UNLOCK", "app:5"); !strings.HasPrefix(got, "-NOREPLICAS ") {
		t.Errorf("UNLOCK while Redis takes no writes: %q", got)
	}
	s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0")
	harness.Eventually(t, "the lock runs out", func() bool { return !exists(t, s, "app:5") })
}

// A client that waits for its owner and closes its connection just before the lock comes to it does not get it.
func TestOwnerWhoseClientLeavesAtTheGrant(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "10m") // what is not freed stays for longer than the test waits
	holder := harness.Dial(t, p.Addr())
	for i := range 60 {
		key := "k" + strconv.Itoa(i)
		verb := []string{"LOCK", "FAIRLOCK", "WLOCK", "RLOCK"}[i%4]
		words := []string{verb, key, "BLOCK", "60000", "OWNER", "me", "PX", "600000"}
		own := verb
		if verb == "RLOCK" {
			own = "WLOCK"
		}
		harness.Expect(t, holder, "+OK\r\n", own, key)
		w := harness.Dial(t, p.Addr())
		w.Send(words...)
		harness.Eventually(t, "it waits", func() bool { return strings.Contains(holder.Do("LOCKLIST", "MATCH", key), "waiting-ms") })
		w.CloseSurely()
		harness.Expect(t, holder, ":1\r\n", "UNLOCK", key)
		harness.Eventually(t, key+" is free", func() bool { return !exists(t, s, key) })
	}
}
