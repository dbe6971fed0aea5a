package locks

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// An operator sees what goes on at a proxy, and nobody else does.
func TestOperator(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--user ops on >pw ~* &* +@all")
	p := harness.StartProxy(t, server.URL(), "--operators", "ops,other")
	holder, waiter := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	holder.Do("CLIENT", "SETNAME", "painter")
	id, waits := clientID(t, holder), clientID(t, waiter)
	for _, lock := range [][]string{{"LOCK", "wall"}, {"LOCK", "yard", "OWNER", "me", "PX", "500000"}} {
		if got := holder.Do(lock...); got != "+OK\r\n" {
			t.Fatalf("%q: %q", lock, got)
		}
	}
	waiter.Send("LOCK", "wall", "BLOCK", "0")
	both(t, func(t *testing.T, connect func(testing.TB, string) *harness.Wire) {
		ops := connect(t, p.Addr())
		expect := func(want string, words ...string) {
			t.Helper()
			if got := ops.Do(words...); got != want {
				t.Errorf("%q: %q, want %q", words, got, want)
			}
		}
		expect("-NOPERM this user has no permissions to run the 'lockproxy|stats' command: lockproxy's --operators does not name it\r\n", "LOCKPROXY", "STATS")
		if got := ops.Do("LOCKPROXY", "HELP"); !strings.Contains(got, "+STATS\r\n") {
			t.Errorf("HELP: %q", got)
		}
		expect("+OK\r\n", "AUTH", "ops", "pw")
		list := func(words ...string) []map[string]any {
			t.Helper()
			return harness.Objects(t, harness.Decode(t, ops.Do(append([]string{"LOCKPROXY"}, words...)...)))
		}
		harness.Eventually(t, "it waits", func() bool { return len(list("WAITERS")) == 1 })
		waiting := list("WAITERS")[0]
		expectFields(t, waiting, map[string]any{"key": "wall", "db": int64(0), "kind": "plain", "owner": waiting["owner"], "client-id": waits, "addr": waiter.C.LocalAddr().String(), "name": "",
			"user": "default", "waiting-ms": anyNumber, "place": int64(1)})
		locks := list("LOCKS", "-1")
		if len(locks) != 2 || len(list("LOCKS", "1")) != 1 {
			t.Fatalf("LOCKS: %v", locks)
		}
		if locks[0]["key"] != "wall" || locks[0]["watched"] != int64(1) || locks[0]["lease-ms"] != int64(30000) || !strings.HasSuffix(locks[0]["owner"].(string), ":"+strconv.FormatInt(id, 10)) {
			t.Errorf("a watched lock: %v", locks[0])
		}
		expectFields(t, locks[1], map[string]any{"key": "yard", "db": int64(0), "kind": "plain", "owner": "me", "client-id": id, "addr": holder.C.LocalAddr().String(), "name": "painter", "user": "default",
			"held-ms": anyNumber, "holds": int64(1), "ttl-ms": anyNumber, "lease-ms": int64(500000), "watched": int64(0), "renewals": int64(0), "renewed-ms-ago": int64(-1)})
		clients := list("CLIENTS")
		if len(clients) < 3 || clients[0]["name"] != "painter" || clients[0]["locks"] != int64(1) || clients[1]["waits-for"] != "wall" || clients[1]["locks"] != int64(0) {
			t.Errorf("CLIENTS: %v", clients)
		}
		var nodes []map[string]any
		harness.Eventually(t, "its node is up, and gives locks", func() bool {
			nodes = list("NODES")
			return len(nodes) == 1 && nodes[0]["state"] == "up" && nodes[0]["locks"] == "ok"
		})
		expectFields(t, nodes[0], map[string]any{"name": server.Addr(), "role": "master", "state": "up", "locks": "ok", "trouble": ""})
		stats := harness.Object(t, harness.Decode(t, ops.Do("LOCKPROXY", "STATS")))
		if stats["locks_held"] != int64(2) || stats["locks_waiting"] != int64(1) || stats["upstream"] != "redis" {
			t.Errorf("STATS: %v", stats)
		}
		expect("-ERR unknown subcommand 'nosuch'. Try LOCKPROXY HELP.\r\n", "LOCKPROXY", "nosuch")
		expect("-ERR wrong number of arguments for 'lockproxy|stats' command\r\n", "LOCKPROXY", "STATS", "x")
		expect("-ERR wrong number of arguments for 'lockproxy' command\r\n", "LOCKPROXY")
		expect("+OK\r\n", "MULTI")
		expect("-ERR Command not allowed inside a transaction\r\n", "LOCKPROXY", "STATS")
		expect("+OK\r\n", "DISCARD")
	})
}
