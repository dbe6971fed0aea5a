package dropin

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// fieldsOf reads the k=v fields of CLIENT INFO.
func fieldsOf(line string) (names []string, values map[string]string) {
	values = map[string]string{}
	for _, field := range strings.Fields(line) {
		if name, value, ok := strings.Cut(field, "="); ok {
			names = append(names, name)
			values[name] = value
		}
	}
	return names, values
}

func TestDropinClientInfo(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	harness.Protocols(t, func(t *testing.T, proto int) {
		direct, through := p.dials(t, proto)
		for _, setup := range []string{"PING", "CLIENT SETNAME me", "SELECT 4", "CLIENT NO-EVICT on"} {
			if want, got := direct.Do(strings.Fields(setup)...), through.Do(strings.Fields(setup)...); want != got {
				t.Errorf("%s: %q, want %q", setup, got, want)
			}
			wantNames, want := fieldsOf(direct.Do("CLIENT", "INFO"))
			gotNames, got := fieldsOf(through.Do("CLIENT", "INFO"))
			if strings.Join(wantNames, " ") != strings.Join(gotNames, " ") {
				t.Errorf("fields %v, want %v", gotNames, wantNames)
			}
			for _, name := range []string{"name", "db", "flags", "user", "resp", "cmd", "sub", "psub", "multi", "redir", "events"} {
				if got[name] != want[name] {
					t.Errorf("after %s: %s=%s, want %s", setup, name, got[name], want[name])
				}
			}
		}
		if addr := through.C.LocalAddr().String(); !strings.Contains(through.Do("CLIENT", "LIST"), " addr="+addr+" laddr="+p.proxy.Addr()+" ") {
			t.Errorf("CLIENT LIST does not show %s", addr)
		}
	})
}

// CLIENT KILL by each filter closes the one it should, at once, and no other.
func TestDropinClientKill(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	killer, witness := harness.Dial(t, p.proxy.Addr()), harness.Dial(t, p.proxy.Addr())
	for _, by := range []string{"ID", "ADDR", "old"} {
		victim := harness.Dial(t, p.proxy.Addr())
		id := strings.Trim(victim.Do("CLIENT", "ID"), ":\r\n")
		addr := victim.C.LocalAddr().String()
		want, command := ":1\r\n", []string{"CLIENT", "KILL", "ID", id}
		switch by {
		case "ADDR":
			command = []string{"CLIENT", "KILL", "ADDR", addr, "TYPE", "normal", "USER", "default", "LADDR", p.proxy.Addr()}
		case "old":
			want, command = "+OK\r\n", []string{"CLIENT", "KILL", addr}
		}
		if got := killer.Do(command...); got != want {
			t.Errorf("%q: %q", command, got)
		}
		if !victim.Closed() {
			t.Errorf("%q: still connected", command)
		}
	}
	if got := witness.Do("PING"); got != "+PONG\r\n" {
		t.Errorf("another client: %q", got)
	}
	harness.Eventually(t, "the victims are off the list", func() bool { return strings.Count(killer.Do("CLIENT", "LIST"), "id=") == 2 })
	if got := killer.Do("CLIENT", "KILL", "TYPE", "normal"); got != ":1\r\n" {
		t.Errorf("CLIENT KILL TYPE normal with two clients, SKIPME by default: %q", got)
	}
}

// Databases, names and protocols belong to one connection each.
func TestDropinConnectionsAreApart(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := harness.StartProxy(t, redis.URL())
	var all []*harness.Wire
	for db := range 8 {
		w := harness.Dial(t, p.Addr())
		if db%2 == 1 {
			w.Do("HELLO", "3")
		}
		w.Do("SELECT", string(rune('0'+db)))
		w.Do("SET", "k", "in "+string(rune('0'+db)))
		all = append(all, w)
	}
	fresh := harness.Dial(t, p.Addr())
	for range 50 {
		for db, w := range all {
			null, score := "$-1\r\n", "$3\r\n2.5\r\n"
			if db%2 == 1 {
				null, score = "_\r\n", ",2.5\r\n"
			}
			w.Send("GET", "k")
			w.Send("GET", "nothing")
			w.Send("ZADD", "z", "2.5", "m")
			w.Send("ZSCORE", "z", "m")
			if got := w.Read(); got != "$4\r\nin "+string(rune('0'+db))+"\r\n" {
				t.Fatalf("in %d: %q", db, got)
			}
			if got := w.Read(); got != null {
				t.Fatalf("in %d, null: %q", db, got)
			}
			w.Read()
			if got := w.Read(); got != score {
				t.Fatalf("in %d, score: %q", db, got)
			}
		}
	}
	if got := fresh.Do("GET", "k"); got != "$4\r\nin 0\r\n" {
		t.Errorf("a connection that selected nothing: %q", got)
	}
}

// A user whose rights are taken away loses them behind the proxy too.
func TestDropinUserIsDeleted(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, closedConfig...)
	p := harness.StartProxy(t, redis.URL())
	w := harness.Dial(t, p.Addr())
	if got := w.Do("AUTH", "alice", "pw"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	if got := w.Do("SET", "app:1", "x"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	redis.Do(t, "ACL", "SETUSER", "alice", "-set")
	if got := w.Do("SET", "app:1", "y"); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("without +set: %q", got)
	}
	redis.Do(t, "ACL", "DELUSER", "alice")
	for range 3 {
		reply, err := w.Try("GET", "app:1")
		if err == nil && !strings.HasPrefix(reply, "-") {
			t.Errorf("a deleted user reads: %q", reply)
		}
		t.Logf("after ACL DELUSER: %q %v", reply, err)
	}
	if got := harness.Dial(t, p.Addr()).Do("AUTH", "alice", "pw"); !strings.HasPrefix(got, "-WRONGPASS") {
		t.Errorf("AUTH as a deleted user: %q", got)
	}
}
