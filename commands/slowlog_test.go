package commands

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/slowlog"
)

// A slow command is shown as Redis shows it, and never with a password.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 130)
	for call, want := range map[string]string{
		"GET k":                                  "GET k",
		"SET k " + long:                          "SET k " + long[:128] + "... (2 more bytes)",
		"DEL" + strings.Repeat(" k", 31):         "DEL" + strings.Repeat(" k", 31),
		"DEL" + strings.Repeat(" k", 32):         "DEL" + strings.Repeat(" k", 30) + " ... (2 more arguments)",
		"Auth pw":                                "Auth (redacted)",
		"AUTH user pw":                           "AUTH (redacted) (redacted)",
		"HELLO 3 auth user pw SETNAME me":        "HELLO 3 auth (redacted) (redacted) SETNAME me",
		"HELLO 3 SETNAME AUTH AUTH user pw":      "HELLO 3 SETNAME AUTH (redacted) (redacted) (redacted)",
		"HELLO 3 AUTH user":                      "HELLO 3 AUTH (redacted)",
		"ACL SETUSER u >pw ~*":                   "ACL SETUSER (redacted) (redacted) (redacted)",
		"ACL whoami":                             "ACL whoami",
		"CONFIG SET requirepass pw maxmemory 1":  "CONFIG SET requirepass (redacted) maxmemory (redacted)",
		"CONFIG GET requirepass":                 "CONFIG GET requirepass",
		"MIGRATE h 1 k 0 5 AUTH pw KEYS a":       "MIGRATE h 1 k 0 5 AUTH (redacted) KEYS a",
		"MIGRATE h 1 k 0 5 COPY AUTH2 u pw":      "MIGRATE h 1 k 0 5 COPY AUTH2 (redacted) (redacted)",
		"FENCED k OWNER me CONFIG SET a pw b pw": "FENCED k OWNER me CONFIG SET a (redacted) b (redacted)",
		"FENCED k":                               "FENCED k",
		"FENCED k FENCED l READ AUTH u pw":       "FENCED k FENCED l READ AUTH (redacted) (redacted)",
		"AUTH" + strings.Repeat(" pw", 40):       "AUTH" + strings.Repeat(" (redacted)", 30) + " ... (10 more arguments)",
	} {
		if got := strings.Join(Shown(nil, words(call)), " "); got != want {
			t.Errorf("%s: %q, want %q", call, got, want)
		}
	}
	renamed := &commandtable.Command{Name: "config|set"}
	for call, c := range map[string]*commandtable.Command{"settings SET requirepass pw": renamed, "CONFIG SET requirepass pw": commandtable.OverShare, "login pw": {Name: "auth"}} {
		if got := strings.Join(Shown(c, words(call)), " "); strings.Contains(got, "pw") {
			t.Errorf("%s: %q", call, got)
		}
	}
}

// A slow command of very many words takes no longer to show than one of a few.
func TestSecretsOfLongCommands(t *testing.T) {
	t.Parallel()
	call := words(strings.Repeat("FENCED k ", 40_000) + "AUTH" + strings.Repeat(" pw", 50_000))
	want := strings.Repeat("FENCED k ", 15) + "FENCED ... (129970 more arguments)"
	began := time.Now()
	if got := strings.Join(Shown(nil, call), " "); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// SLOWLOG lists entries as Redis does, the newest first, with what Redis' does not have behind.
func TestOperatorSlowlog(t *testing.T) {
	t.Parallel()
	c := &operator{may: true, proto: 3}
	said := func(call string) string { return c.said("LOCKPROXY SLOWLOG " + call) }
	at := time.Unix(1700000000, 0)
	c.log.Add(slowlog.Entry{At: at, Took: 20 * time.Millisecond, Upstream: 15 * time.Millisecond, Args: []string{"GET", "k"}, Commands: 3, Client: slowlog.Client{Addr: "a:1", Name: "n", User: "u"}})
	c.log.Add(slowlog.Entry{At: at, Took: time.Second, Upstream: -1, Args: []string{"LOCK", "k"}, Commands: 1})
	first := "*9\r\n:0\r\n:1700000000\r\n:20000\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n$3\r\na:1\r\n$1\r\nn\r\n$1\r\nu\r\n:15000\r\n:3\r\n"
	second := "*9\r\n:1\r\n:1700000000\r\n:1000000\r\n*2\r\n$4\r\nLOCK\r\n$1\r\nk\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n_\r\n:1\r\n"
	for _, step := range []struct{ call, want string }{
		{"GET", "*2\r\n" + second + first},
		{"get 1", "*1\r\n" + second},
		{"GET -1", "*2\r\n" + second + first},
		{"GET -2", "-ERR count should be greater than or equal to -1\r\n"},
		{"GET 1 2", "-ERR unknown subcommand or wrong number of arguments for 'SLOWLOG'. Try LOCKPROXY HELP.\r\n"},
		{"LEN", ":2\r\n"},
		{"LEN 1", "-ERR unknown subcommand or wrong number of arguments for 'LEN'. Try LOCKPROXY HELP.\r\n"},
		{"nosuch", "-ERR unknown subcommand or wrong number of arguments for 'nosuch'. Try LOCKPROXY HELP.\r\n"},
		{"RESET", "+OK\r\n"},
		{"GET", "*0\r\n"},
	} {
		if got := said(step.call); got != step.want {
			t.Errorf("%s: %q, want %q", step.call, got, step.want)
		}
	}
	c.may = false
	if got := said("GET"); !strings.HasPrefix(got, "-NOPERM ") {
		t.Errorf("who is no operator gets %q", got)
	}
}
