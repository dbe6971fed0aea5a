package locks

import (
	"context"
	"os"
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
	cmd.Env = append(os.Environ(), "TERM=dumb") // one that cannot be drawn on
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
	p := harness.StartProxy(t, server.URL(), "--operators", "default", "--slowlog-slower-than", "1ns")
	holder, waiter := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, holder, "+OK\r\n", "CLIENT", "SETNAME", "shop")
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "orders\x1b[2J")
	waiter.Send("LOCK", "orders\x1b[2J", "BLOCK", "0")
	watch := harness.Dial(t, p.Addr())
	harness.Eventually(t, "it waits", func() bool {
		return strings.Contains(watch.Do("LOCKPROXY", "STATS"), "locks_waiting\r\n:1\r\n")
	})
	said, code := "", 0
	harness.Eventually(t, "its node is shown to be up", func() bool {
		said, code = top(t, "--once", "--address", p.Addr())
		return code != 0 || regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(server.Addr())+` +master +up`).MatchString(said)
	})
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	for _, want := range []string{
		`(?m)^lockproxy .*, before redis ` + regexp.QuoteMeta(server.Addr()) + `; clients: [1-9]`,
		`(?m)^locks of this proxy: 1 held, .*; 1 wait, `,
		`(?m)^orders\\x1b\[2J +plain +0 +\S+:[0-9]+ +` + regexp.QuoteMeta(holder.C.LocalAddr().String()) + ` shop +default +[0-9.]+ s +1 `,
		`(?m)^orders\\x1b\[2J +plain +0 +1 +[0-9.]+ s .*` + regexp.QuoteMeta(waiter.C.LocalAddr().String()),
		`(?m)^[0-9]+ +\S+ lockproxy-top +default `,
		`(?m)^orders\\x1b\[2J +0 +1 +0 +0`,
		`(?m)^[0-9:]+ +[0-9.]+ ms +` + regexp.QuoteMeta(holder.C.LocalAddr().String()) + ` shop +default +LOCK orders`,
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
	if said, code := top(t, "--address", p.Addr()); code != 1 || !strings.Contains(said, "--once prints without a terminal") {
		t.Errorf("without a terminal: exit code %d, %s", code, said)
	}
}
