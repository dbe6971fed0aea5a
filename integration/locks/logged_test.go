package locks

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A lost lock of an owner with a name leaves one line in the log, and so does a FORCE, with who it was.
func TestLossesAndForceAreLogged(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL())
	w, other := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, other, "+OK\r\n", "CLIENT", "SETNAME", "the-admin")
	harness.Eventually(t, "a lock that is granted before its lease is over", func() bool {
		return w.Do("LOCK", "short", "PX", "200") == "+OK\r\n"
	})
	harness.Expect(t, w, "+OK\r\n", "LOCK", "forced", "OWNER", "worker-2", "EX", "30")
	harness.Expect(t, other, ":1\r\n", "UNLOCK", "forced", "FORCE")
	harness.Expect(t, other, ":0\r\n", "UNLOCK", "forced", "FORCE") // of nobody's
	lines := func(words ...string) (n int) {
		for line := range strings.Lines(p.Log()) {
			all := true
			for _, word := range words {
				all = all && strings.Contains(line, word)
			}
			if all {
				n++
			}
		}
		return n
	}
	for _, words := range [][]string{
		{"lock ended", "level=INFO", "key=short", "reason=expired"},
		{"lock freed by force", "key=forced", "by=127.0.0.1:", "user=default", "name=the-admin"},
	} {
		harness.Eventually(t, strings.Join(words, " "), func() bool { return lines(words...) > 0 })
	}
	if got := w.Do("UNLOCK", "short"); !strings.HasPrefix(got, "-LOCKLOST ") {
		t.Errorf("UNLOCK: %q", got)
	}
	if lost, ended, forced := lines("lock lost"), lines("lock ended"), lines("lock freed by force"); lost != 0 || ended != 1 || forced != 1 {
		t.Errorf("%d losses, %d ends and %d FORCEs in the log:\n%s", lost, ended, forced, p.Log())
	}
}
