package locks

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// top runs `lockproxy top` to its end.
func top(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, harness.Binary(t), append([]string{"top"}, args...)...)
	said, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(said), cmd.ProcessState.ExitCode()
}

// Who holds and waits for which lock is printed for an operator, and why it cannot be for others.
func TestTop(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL(), "--operators", "default")
	holder, waiter := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, holder, "+OK\r\n", "CLIENT", "SETNAME", "shop")
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "orders\x1b[2J")
	waiter.Send("LOCK", "orders\x1b[2J", "BLOCK", "0")
	watch := harness.Dial(t, p.Addr())
	harness.Eventually(t, "it waits", func() bool {
		return strings.Contains(watch.Do("LOCKPROXY", "STATS"), "locks_waiting\r\n:1\r\n")
	})
	said, code := top(t, "--once", "--address", p.Addr())
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	for _, want := range []string{
		`(?m)^lockproxy .*, before redis ` + regexp.QuoteMeta(server.Addr()) + `; clients: [1-9]`,
		`(?m)^locks of this proxy: 1 held, .*; 1 wait, `,
		`(?m)^orders\\x1b\[2J +plain +0 +` + regexp.QuoteMeta(holder.C.LocalAddr().String()) + ` shop +[0-9.]+ s +[0-9]+ s of 30 s +default +1 +\S+:[0-9]+`,
		`(?m)^orders\\x1b\[2J +plain +0 +` + regexp.QuoteMeta(waiter.C.LocalAddr().String()) + ` +[0-9.]+ s +1 +default`,
		`(?m)^[0-9-]+ [0-9:]+ +grant +orders\\x1b\[2J +` + regexp.QuoteMeta(holder.C.LocalAddr().String()) + ` shop`,
	} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("no %s in\n%s", want, said)
		}
	}

	server.Do(t, "ACL", "SETUSER", "somebody", "on", ">pass", "~*", "&*", "+@all")
	for _, c := range []struct {
		address, want string
		code          int
	}{
		{"redis://somebody:pass@" + p.Addr(), "NOPERM", 1},
		{"redis://somebody:wrong@" + p.Addr(), "WRONGPASS", 1},
		{"127.0.0.1:1", "refused", 1},
		{"http://x", "--address: not host:port", 2},
	} {
		if said, code := top(t, "--once", "--address", c.address); code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("%s: exit code %d, %s", c.address, code, said)
		}
	}
}
