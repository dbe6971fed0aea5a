package stable

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// told are the fields that replies have, each with the command, where it is in the reply, and the type of its value.
type told map[string]bool

// ask has the fields of a reply in RESP3 noted under a command.
func (all told) ask(w *harness.Wire, command string, more ...string) {
	w.T.Helper()
	all.walk(command, harness.Decode(w.T, w.Do(append(strings.Fields(command), more...)...)))
}

func (all told) walk(path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, of := range v {
			all.walk(path+" "+name, of)
		}
	case []any:
		for _, of := range v {
			all.walk(path+"[]", of)
		}
	case nil:
		all[path+": nil"] = true
	default:
		all[path+": "+map[string]string{"string": "string", "int64": "integer"}[fmt.Sprintf("%T", v)]] = true
	}
}

// TestFields: the fields of what tells of locks, of clients and of the proxy.
func TestFields(t *testing.T) {
	t.Parallel()
	server, all := testredis.Start(t), told{}
	here, there := harness.StartProxy(t, server.URL(), "--operators", "default"), harness.StartProxy(t, server.URL())
	w := harness.DialHearing(t, here.Addr())
	for _, call := range []string{"LOCK plain FENCE", "LOCK named OWNER job EX 600", "RLOCK read", "WLOCK write", "LOCK limit LIMIT 2", "LOCK lost"} {
		harness.Decode(t, w.Do(strings.Fields(call)...))
	}
	far := harness.Dial(t, there.Addr())
	harness.Expect(t, far, "+OK\r\n", "LOCK", "far")
	server.Do(t, "HSET", "java", "0f8fad5b-d9cb-469f-a165-70867728950e:52", "1")
	server.Do(t, "PEXPIRE", "java", "600000")
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		harness.Dial(t, here.Addr()).Send(verb, "plain", "BLOCK", "0")
	}
	asker := harness.Dial3(t, here.Addr())
	harness.Eventually(t, "two wait", func() bool { return harness.WaitingHere(t, asker, "plain") == 2 })
	host, _ := os.Hostname()
	harness.Eventually(t, "the proxies know of each other", func() bool {
		return strings.Contains(asker.Do("LOCKINFO", "far"), host) && strings.Contains(asker.Do("LOCKINFO", "java"), "redisson")
	})
	for _, key := range []string{"plain", "named", "read", "write", "limit", "far", "java", "none"} {
		all.ask(asker, "LOCKINFO", key)
	}
	all.ask(asker, "LOCKLIST")
	all.ask(asker, "LOCKLIST SCAN", "0", "COUNT", "1000")
	for _, list := range []string{"CLIENTS", "CONFIG", "LOCKS", "NODES", "PROXIES", "WAITERS"} {
		all.ask(asker, "LOCKPROXY "+list)
	}
	for _, list := range []string{"LOCKS", "WAITERS"} {
		all.ask(asker, "LOCKPROXY "+list, "ALL")
	}
	all.ask(asker, "UNLOCK lost FORCE")
	push := strings.Split(w.Read(), "\r\n") // each element is two lines
	all["push "+strings.Join([]string{push[0], push[2], push[4], push[6], push[8]}, " ")] = true
	all.events(here)
	all.manyReaders(server, asker)
	all.apart(t)
	all.ofQuorum(t)
	hold(t, "fields", slices.Sorted(maps.Keys(all)))
}

// events has events of all fields happen: one that has waited for long, one that has held for long, and more of one lock than are kept.
func (all told) events(p *harness.Proxy) {
	holder, waiter := harness.Dial3(p.T, p.Addr()), harness.Dial(p.T, p.Addr())
	harness.Expect(p.T, holder, "+OK\r\n", "CLIENT", "SETNAME", "holder")
	harness.Expect(p.T, holder, "+OK\r\n", "LOCK", "long")
	harness.Expect(p.T, waiter, "$-1\r\n", "LOCK", "long", "BLOCK", "1100")
	harness.Expect(p.T, holder, ":1\r\n", "UNLOCK", "long")
	var often [][]string
	for range 100 {
		often = append(often, []string{"LOCK", "often"}, []string{"UNLOCK", "often"})
	}
	holder.Pipeline(harness.EncodeAll(often), len(often))
	harness.Eventually(p.T, "it is told how many were left out", func() bool {
		return strings.Contains(holder.Do("LOCKPROXY", "EVENTS", "-1", "*", "grant"), "more")
	})
	all.ask(holder, "LOCKPROXY EVENTS", "-1")
}

// manyReaders has a read lock that more threads of Java hold than LOCKLIST SCAN shows.
func (all told) manyReaders(server *testredis.Server, w *harness.Wire) {
	words := []any{"HSET", "readers", "mode", "read"}
	for i := range 600 { // so many that Redis tells of some of them alone
		thread := fmt.Sprintf("0f8fad5b-d9cb-469f-a165-70867728950e:%d", i)
		words = append(words, thread, "1")
		server.Do(w.T, "SET", "{readers}:"+thread+":rwlock_timeout:1", "1", "PX", "600000")
	}
	server.Do(w.T, words...)
	server.Do(w.T, "PEXPIRE", "readers", "600000")
	all.ask(w, "LOCKLIST SCAN", "0", "COUNT", "1000", "MATCH", "readers")
}

// apart asks a proxy whose locks are not where the data is.
func (all told) apart(t *testing.T) {
	p := harness.StartProxy(t, testredis.Start(t).URL(), "--locks", testredis.Start(t).URL())
	all.ask(harness.Dial3(t, p.Addr()), "LOCKINFO", "k")
}

// ofQuorum asks a proxy before a quorum, of which one node is down.
func (all told) ofQuorum(t *testing.T) {
	nodes := harness.StartNodes(t, 3)
	p := harness.StartProxy(t, testredis.Start(t).URL(), "--quorum", nodes[0].URL(), "--quorum", nodes[1].URL(), "--quorum", nodes[2].URL(),
		"--quorum-max-lease", "3s", "--lock-watchdog-timeout", "3s", "--operators", "default")
	w := harness.Dial3(t, p.Addr())
	harness.Eventually(t, "a lock is had", func() bool { return w.Do("LOCK", "k", "OWNER", "job", "EX", "3") == "+OK\r\n" })
	nodes[2].Kill()
	harness.Eventually(t, "a node is down", func() bool { return harness.NodeState(w, 2, "state") == "down" })
	harness.Eventually(t, "a lock is had of the others", func() bool {
		w.Do("LOCK", "k", "OWNER", "job", "EX", "3")
		return strings.Contains(w.Do("LOCKINFO", "k"), "job")
	})
	w.Do("LOCK", "k", "OWNER", "job", "EX", "3")
	all.ask(w, "LOCKINFO", "k")
	all.ask(w, "LOCKPROXY NODES")
}
