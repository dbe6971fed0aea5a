package stable

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestSettings: name, default, environment variable, and whether it changes while lockproxy runs. The variable and the key of the YAML
// file are tried.
func TestSettings(t *testing.T) {
	none, err := config.Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	var now []string
	for _, s := range config.InForce(none, none, nil) {
		variable := "LOCKPROXY_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
		line := fmt.Sprintf("--%s %s", s.Name, variable)
		if s.Value != "" {
			line += " default " + s.Value
		}
		if s.Live {
			line += " live"
		}
		now = append(now, line)
		t.Run(s.Name, func(t *testing.T) {
			if s.Name != "config" {
				file := filepath.Join(t.TempDir(), "lockproxy.yaml")
				if err := os.WriteFile(file, []byte(s.Name+": \"no such value\"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := config.Parse([]string{"--config", file}); err != nil && strings.Contains(err.Error(), "unknown setting") {
					t.Errorf("it is no key of the YAML file: %v", err)
				}
			}
			t.Setenv(variable, "no such value")
			if _, err := config.Parse(nil); err != nil && strings.Contains(err.Error(), "no setting has this variable") {
				t.Error(err)
			}
		})
	}
	slices.Sort(now)
	hold(t, "settings", now)
}

var helpFlag = regexp.MustCompile(`(?m)^  (--[a-z-]+(?: [A-Z]+)?)`)

// commandFlags are the flags that a command of lockproxy has beside the settings, as its help says them.
func commandFlags(t *testing.T, command string) (all []string) {
	t.Helper()
	help, err := exec.Command(harness.Binary(t), command, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range helpFlag.FindAllSubmatch(help, -1) {
		all = append(all, "lockproxy "+command+" "+string(found[1]))
	}
	return all
}

// exitOf runs lockproxy to its end and returns its exit code.
func exitOf(t *testing.T, args ...string) int {
	t.Helper()
	return testredis.StartChild(t, exec.Command(harness.Binary(t), args...)).Exit(t)
}

// begun starts lockproxy run with a command that says that it has begun, and waits for that.
func begun(t *testing.T, args ...string) *testredis.Child {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), append(args, "--", "/bin/sh", "-c", "echo begun; exec sleep 600")...)
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	defer w.Close()
	cmd.Stdout = w
	child := testredis.StartChild(t, cmd)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return child
}

// drained ends a proxy by two signals while a client holds a lock.
func drained(t *testing.T, url string) int {
	t.Helper()
	p := harness.StartProxy(t, url)
	harness.Expect(t, harness.Dial(t, p.Addr()), "+OK\r\n", "LOCK", "held in a drain")
	p.Signal(syscall.SIGTERM)
	harness.Eventually(t, "it drains", func() bool { return strings.Contains(p.Log(), "draining") })
	return p.Term()
}

// TestCommandLine: the commands of lockproxy with their flags, and how they end.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	var now []string
	for _, command := range []string{"health", "run", "top"} {
		now = append(now, commandFlags(t, command)...)
	}
	for _, flag := range []string{"--check-config", "--help", "--help-all", "--version"} {
		now = append(now, fmt.Sprintf("lockproxy %s: exit code %d", flag, exitOf(t, flag)))
	}
	server := testredis.Start(t)
	p, gone := harness.StartProxy(t, server.URL()), harness.StartProxy(t, server.URL())
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "LOCK", "taken")
	folder, at, nobody := t.TempDir(), p.Addr(), gone.Addr()
	lost := begun(t, "run", "--address", at, "--lock", "lost")
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "lost", "FORCE")
	ended := gone.Term()
	for what, code := range map[string]int{
		"lockproxy: SIGTERM":                               ended,
		"lockproxy: a second signal":                       drained(t, server.URL()),
		"lockproxy: it cannot start":                       exitOf(t, "--upstream", server.URL(), "--listen", at),
		"lockproxy: a setting is wrong":                    exitOf(t, "--log-level", "loud"),
		"lockproxy health: it is ready":                    exitOf(t, "health", "--listen", at),
		"lockproxy health: it is not":                      exitOf(t, "health", "--listen", nobody),
		"lockproxy health: a setting is wrong":             exitOf(t, "health", "--log-level", "loud"),
		"lockproxy run: the command has ended with 7":      exitOf(t, "run", "--address", at, "--lock", "free", "--", "/bin/sh", "-c", "exit 7"),
		"lockproxy run: signal 15 has ended the command":   exitOf(t, "run", "--address", at, "--lock", "free", "--", "/bin/sh", "-c", "kill -TERM $$"),
		"lockproxy run: the lock was lost":                 lost.Exit(t),
		"lockproxy run: somebody else has the lock":        exitOf(t, "run", "--address", at, "--lock", "taken", "--wait", "0", "--", "true"),
		"lockproxy run: there is no proxy":                 exitOf(t, "run", "--address", nobody, "--lock", "free", "--wait", "0", "--", "true"),
		"lockproxy run: a flag is wrong":                   exitOf(t, "run", "--address", at, "--look", "free", "--", "true"),
		"lockproxy run: the command cannot be run":         exitOf(t, "run", "--address", at, "--lock", "free", "--", folder),
		"lockproxy run: there is no such command":          exitOf(t, "run", "--address", at, "--lock", "free", "--", "/no/such/command"),
		"lockproxy top: the user is none of the operators": exitOf(t, "top", "--once", "--address", at),
		"lockproxy top: a flag is wrong":                   exitOf(t, "top", "--twice"),
	} {
		now = append(now, fmt.Sprintf("%s: exit code %d", what, code))
	}
	slices.Sort(now)
	hold(t, "commandline", now)
}
