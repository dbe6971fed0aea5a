package cluster

import (
	"strings"
	"testing"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// keyOf is a key of a slot that a server has.
func keyOf(t *testing.T, tc *testredis.Cluster, s *testredis.Server) string {
	t.Helper()
	for _, key := range strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y z") {
		if at, err := tc.Owner(slots.Slot([]byte(key))); err == nil && at == s {
			return key
		}
	}
	t.Fatal("no key of its slots")
	return ""
}

// A node that lost a user's ACL costs the commands that go there, and only those: that user's clients stay connected, whatever
// they were doing, and go on at the other nodes. Once all nodes refuse the password, its clients are closed.
func TestClusterNodeThatRefusesAUser(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	everywhere := func(args ...any) {
		for _, s := range tc.Servers {
			s.Do(t, args...)
		}
	}
	everywhere("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all")
	p := harness.StartClusterProxy(t, tc)
	bad, good := tc.Servers[1], tc.Servers[0]
	there, here := keyOf(t, tc, bad), keyOf(t, tc, good)
	bob := func() *harness.Wire {
		w := harness.Dial(t, p.Addr())
		harness.Expect(t, w, ok, "AUTH", "bob", "pw")
		return w
	}
	var all []*harness.Wire
	for range 6 {
		w := bob()
		harness.Expect(t, w, ok, "SET", here, "1")
		harness.Expect(t, w, ok, "SET", there, "1")
		all = append(all, w)
	}
	holds, waits, listens := bob(), bob(), bob()
	harness.Expect(t, holds, ok, "LOCK", "{"+here+"}lock")
	waits.Send("BLPOP", "{"+here+"}queue", "0")
	listens.Send("SSUBSCRIBE", here)
	listens.Read()

	bad.Do(t, "ACL", "DELUSER", "bob")
	for range 8 { // whichever node is asked first
		bob()
		harness.Expect(t, harness.Dial(t, p.Addr()), "-WRONGPASS invalid username-password pair or user is disabled.\r\n", "AUTH", "bob", "wrong")
	}
	for _, w := range all {
		harness.Eventually(t, "the node that lost the user says so", func() bool {
			return strings.HasPrefix(w.Do("GET", there), "-WRONGPASS ")
		})
		harness.Expect(t, w, "$1\r\n1\r\n", "GET", here)
	}
	harness.Expect(t, holds, ":1\r\n", "UNLOCK", "{"+here+"}lock")
	harness.Expect(t, all[0], ":1\r\n", "RPUSH", "{"+here+"}queue", "x")
	if got := waits.Read(); !strings.Contains(got, "queue") {
		t.Errorf("BLPOP at a healthy node: %q", got)
	}
	hears(t, all[0], []*subscriber{{listens, t, "*"}}, "SPUBLISH", here)

	everywhere("ACL", "SETUSER", "bob", "on", "resetpass", ">other")
	good.Do(t, "CLIENT", "KILL", "USER", "bob")
	for i, w := range all {
		if i == 0 {
			_, _ = w.Try("GET", here) // has a connection made again, and refused
		}
		if !w.Closed() {
			t.Errorf("client %d is still there when its password is no longer good anywhere", i)
		}
	}
}
