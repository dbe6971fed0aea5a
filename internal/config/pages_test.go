package config

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/runlock"
	"github.com/lockproxy/lockproxy/internal/top"
)

// flagged is a flag as the man page and the completions of shells have it.
type flagged struct {
	name, value, meaning string // value is empty for a flag without one
	choices              []string
	file                 bool
}

var oneOf = regexp.MustCompile(`is not one of (.+)$`)

// serverFlags are those of lockproxy itself.
func serverFlags() (all []flagged) {
	for _, s := range settings {
		f := flagged{name: s.name, value: "VALUE", meaning: s.meaning, file: s.name == "config" || strings.HasSuffix(s.name, "-file") || strings.HasPrefix(s.name, "tls-") && s.name != "tls-listen" && s.name != "tls-client-auth" ||
			strings.HasPrefix(s.name, "admin-tls-") || strings.HasPrefix(s.name, "upstream-tls-") && s.name != "upstream-tls-server-name"}
		if err := s.apply(&Config{}, "\x00"); err != nil {
			if some := oneOf.FindStringSubmatch(err.Error()); some != nil {
				f.choices = strings.Split(some[1], ", ")
			}
		}
		if s.def != "" {
			f.meaning += " Default: `" + s.def + "`."
		}
		if s.list {
			f.meaning += " A list: with commas, or the flag repeated."
		}
		all = append(all, f)
	}
	for name, meaning := range map[string]string{"check-config": checkMeaning, "version": versionMeaning, "help": helpMeaning, "help-all": helpAllMeaning} {
		all = append(all, flagged{name: name, meaning: meaning})
	}
	slices.SortFunc(all[len(settings):], func(a, b flagged) int { return strings.Compare(a.name, b.name) })
	return all
}

// flagLine is a flag in the help of lockproxy's commands, with its value and the first line of its meaning.
var flagLine = regexp.MustCompile(`(?m)^  --([a-z-]+)( [A-Z]+)? +(\S.*(?:\n {10,}.*)*)$`)

// runFlags, topFlags and healthFlags are those of lockproxy run, lockproxy top and, beside the settings, lockproxy health.
func runFlags() []flagged    { return flagsIn(runlock.Usage) }
func topFlags() []flagged    { return flagsIn(top.Usage) }
func healthFlags() []flagged { return flagsIn(UsageHealth) }

// commandFlags are the flags of each command.
func commandFlags() iter.Seq2[string, []flagged] {
	return func(yield func(string, []flagged) bool) {
		_ = yield("run", runFlags()) && yield("top", topFlags()) && yield("health", append(healthFlags(), serverFlags()...))
	}
}

func flagsIn(usage func(io.Writer)) (all []flagged) {
	var help bytes.Buffer
	usage(&help)
	for _, row := range flagLine.FindAllStringSubmatch(help.String(), -1) {
		all = append(all, flagged{name: row[1], value: strings.TrimSpace(row[2]), meaning: strings.Join(strings.Fields(row[3]), " ")})
	}
	return all
}

// inMenu is what a shell's menu says of a flag: the line of --help, or else the beginning of its meaning.
func inMenu(f flagged) string {
	text := strings.TrimSuffix(strings.ReplaceAll(f.meaning, "`", ""), ".")
	for _, end := range []string{". ", "; ", ": "} {
		if before, _, found := strings.Cut(text, end); found && len(before) > 10 {
			text = before
		}
	}
	for _, b := range briefs {
		if b.name == f.name {
			text = b.text
		}
	}
	return strings.ReplaceAll(text, "'", "’") // both shells quote it
}

var ticked = regexp.MustCompile("`([^`]*)`")

// roff is a sentence as man(7) takes it: what stood between backticks is bold.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "'", `\(aq`).Replace(s)
	s = ticked.ReplaceAllString(s, `\fB$1\fR`)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

func manPage() string {
	var b strings.Builder
	b.WriteString(`.\" Written by: go test ./internal/config -update
.TH LOCKPROXY 1 "" lockproxy "User Commands"
.nh
.ad l
.SH NAME
lockproxy \- a proxy for Redis that adds locks
.SH SYNOPSIS
.B lockproxy
.RI [ flags ]
.br
.B lockproxy run \-\-lock
.I NAME
.RI [ flags ]
.B \-\-
.IR command " [" argument " ...]"
.br
.B lockproxy top
.RI [ flags ]
.br
.B lockproxy health
.RI [ flags ]
.SH DESCRIPTION
lockproxy serves the Redis protocol in front of a Redis server, a master behind Sentinels, or a Redis Cluster.
Ordinary commands pass through.
The verbs LOCK, FAIRLOCK, RLOCK, WLOCK, MULTILOCK, UNLOCK, MULTIUNLOCK, RENEW, FENCED, LOCKINFO and LOCKLIST
give every client the locks of Redisson.
.PP
.B lockproxy run
holds a lock while a command runs. It is a client of a lockproxy.
.PP
.B lockproxy top
prints who holds and waits for which lock, every two seconds. It is a client, too, of one of the proxy's
operators.
.PP
.B lockproxy health
asks the lockproxy of this machine that has these settings whether it is ready for clients, as for a HEALTHCHECK of Docker.
.SH OPTIONS
Each flag is also an environment variable, as \fBLOCKPROXY_LOG_LEVEL\fR for \fB\-\-log\-level\fR, and a key of the YAML file that
\fB\-\-config\fR names. The flag wins over the variable, and the variable over the file.
`)
	options := func(all []flagged) {
		for _, f := range all {
			fmt.Fprintf(&b, ".TP\n\\fB\\-\\-%s\\fR", strings.ReplaceAll(f.name, "-", `\-`))
			if f.value != "" {
				fmt.Fprintf(&b, " \\fI%s\\fR", f.value)
			}
			fmt.Fprintf(&b, "\n%s\n", roff(f.meaning))
		}
	}
	options(serverFlags())
	b.WriteString(".SH OPTIONS OF LOCKPROXY RUN\n")
	options(runFlags())
	b.WriteString(".SH OPTIONS OF LOCKPROXY TOP\n")
	options(topFlags())
	b.WriteString(".SH OPTIONS OF LOCKPROXY HEALTH\nAll those of lockproxy, and:\n")
	options(healthFlags())
	b.WriteString(`.SH EXIT STATUS
.TP
.B 0
It was stopped, or did what it was asked.
.TP
.B 1
It could not start, or ended with an error.
.TP
.B 2
A setting is wrong.
.TP
.B 130
A second signal ended it.
.PP
.B lockproxy health
exits with 0 if the proxy is ready, 1 if it is not, 2 if a setting is wrong.
.PP
.B lockproxy run
exits with the code of its command, or 128 + n after signal n; 123: the lock was lost; 124: somebody else held the lock;
125: other trouble; 126, 127: the command cannot be run, or does not exist.
.SH SIGNALS
.TP
.B SIGTERM, SIGINT
Stop: grant no more locks, and wait for their holders. A second one ends the process at once.
.TP
.B SIGHUP
Read the file of settings and the certificates again.
.SH FILES
.TP
.I /etc/lockproxy.yaml
The settings of the Debian package's service.
.SH SEE ALSO
.BR redis\-cli (1),
.BR flock (1)
`)
	return b.String()
}

// valueOf is what bash offers for the value of a flag.
func valueOf(f flagged) string {
	switch {
	case f.choices != nil:
		return `compgen -W "` + strings.Join(f.choices, " ") + `" -- "$cur"`
	case f.file:
		return `compgen -f -- "$cur"`
	}
	return ":"
}

func bashCompletion() string {
	var b strings.Builder
	b.WriteString("# Written by: go test ./internal/config -update\n_lockproxy() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} live=\n\tCOMPREPLY=()\n" +
		"\t[ \"${COMP_WORDS[1]}\" != health ] || live=\" --live\"\n")
	names := func(all []flagged) (s string) {
		for _, f := range all {
			s += " --" + f.name
		}
		return s[1:]
	}
	for command, all := range commandFlags() {
		if command == "health" {
			continue // it has the flags below, and one more
		}
		fmt.Fprintf(&b, "\tif [ \"${COMP_WORDS[1]}\" = %s ] && [ \"$COMP_CWORD\" -gt 1 ]; then\n\t\tmapfile -t COMPREPLY < <(compgen -W \"%s\" -- \"$cur\")\n\t\treturn\n\tfi\n", command, names(all))
	}
	b.WriteString("\tcase $prev in\n")
	for _, f := range serverFlags() {
		if f.value != "" {
			fmt.Fprintf(&b, "\t--%s) mapfile -t COMPREPLY < <(%s) ;;\n", f.name, valueOf(f))
		}
	}
	fmt.Fprintf(&b, "\t*) mapfile -t COMPREPLY < <(compgen -W \"run top health%s %s\" -- \"$cur\") ;;\n\tesac\n}\ncomplete -o default -F _lockproxy lockproxy\n", "$live", names(serverFlags()))
	return b.String()
}

func zshCompletion() string {
	var b strings.Builder
	b.WriteString("#compdef lockproxy\n# Written by: go test ./internal/config -update\n")
	spec := func(f flagged) string {
		text := strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(inMenu(f))
		s := "--" + f.name
		switch {
		case f.value == "":
			return fmt.Sprintf("  '%s[%s]'", s, text)
		case f.choices != nil:
			return fmt.Sprintf("  '*%s=[%s]:value:(%s)'", s, text, strings.Join(f.choices, " "))
		case f.file:
			return fmt.Sprintf("  '*%s=[%s]:file:_files'", s, text)
		}
		return fmt.Sprintf("  '*%s=[%s]:value:'", s, text)
	}
	list := func(all []flagged) {
		b.WriteString("_arguments")
		for _, f := range all {
			b.WriteString(" \\\n" + spec(f))
		}
	}
	for command, all := range commandFlags() {
		fmt.Fprintf(&b, "if (( CURRENT > 2 )) && [[ $words[2] == %s ]]; then\n  shift words; (( CURRENT-- ))\n  ", command)
		list(all)
		if command == "run" {
			b.WriteString(" \\\n  '*:::command:_normal'")
		}
		b.WriteString("\n  return\nfi\n")
	}
	list(serverFlags())
	b.WriteString(" \\\n  '1:command:(run top health)'\n")
	return b.String()
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString("# Written by: go test ./internal/config -update\ncomplete -c lockproxy -f\n" +
		"complete -c lockproxy -n __fish_use_subcommand -a run -d 'Hold a lock while a command runs'\n" +
		"complete -c lockproxy -n __fish_use_subcommand -a top -d 'Show who holds and waits for which lock'\n" +
		"complete -c lockproxy -n __fish_use_subcommand -a health -d 'Ask whether a lockproxy is ready'\n")
	list := func(when string, all []flagged) {
		for _, f := range all {
			fmt.Fprintf(&b, "complete -c lockproxy -n '%s' -l %s", when, f.name)
			switch {
			case f.value == "":
			case f.choices != nil:
				fmt.Fprintf(&b, " -x -a '%s'", strings.Join(f.choices, " "))
			case f.file:
				b.WriteString(" -r -F")
			default:
				b.WriteString(" -x")
			}
			fmt.Fprintf(&b, " -d '%s'\n", inMenu(f))
		}
	}
	list("not __fish_seen_subcommand_from run top", serverFlags())
	list("__fish_seen_subcommand_from run", runFlags())
	list("__fish_seen_subcommand_from top", topFlags())
	list("__fish_seen_subcommand_from health", healthFlags())
	return b.String()
}

// TestPagesOfFlags: the man page and the completions have the flags that there are.
func TestPagesOfFlags(t *testing.T) {
	for name, usage := range map[string]func(io.Writer){"run": runlock.Usage, "top": top.Usage, "health": UsageHealth} {
		var help bytes.Buffer
		usage(&help)
		if found, want := len(flagsIn(usage)), strings.Count(help.String(), "\n  --"); found != want || found == 0 {
			t.Errorf("%d of the %d flags in the help of lockproxy %s were found", found, want, name)
		}
	}
	for path, want := range map[string]string{
		"man/lockproxy.1": manPage(), "completions/lockproxy.bash": bashCompletion(),
		"completions/_lockproxy": zshCompletion(), "completions/lockproxy.fish": fishCompletion(),
	} {
		path = filepath.Join("..", "..", "deploy", path)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is stale (%v): go test ./internal/config -update", path, err)
		}
	}
}

// subject is a heading of docs/CONFIGURATION.md, and the settings below it.
type subject struct{ title, names string }

var subjects = []subject{
	{"Redis", "upstream upstream-password-file sentinel-password-file upstream-timeout " +
		"upstream-tls-ca upstream-tls-cert upstream-tls-key upstream-tls-server-name"},
	{"Cluster", "cluster-address-map cluster-refresh cluster-retry cluster-pubsub present " +
		"announce-address"},
	{"Quorum", "quorum quorum-password-file quorum-max-lease quorum-node-timeout"},
	{"Locks", "locks locks-password-file lock-watchdog-timeout max-hold implicit-reentry wait-poll"},
	{"Where clients connect", "listen protected-mode proxy-protocol proxy-protocol-from handshake-timeout idle-timeout " +
		"unix-socket-mode unix-socket-group reuse-port attached"},
	{"TLS for clients", "tls-listen tls-cert tls-key tls-client-ca tls-client-auth tls-auth-user-passwords"},
	{"Commands", "allow deny blocking-commands operators"},
	{"Limits", "max-clients max-locks-per-user " +
		"max-upstream-connections max-bulk " +
		"max-query-memory max-reply-memory client-output-buffer-limit"},
	{"Metrics, traces and the page for operators", "metrics-listen admin-socket admin-listen " +
		"admin-token-file admin-view-token-file admin-tls-cert admin-tls-key admin-tls-client-ca event-log"},
	{"The process", "config drain-delay drain-timeout log-level log-format"},
}

// TestSubjects: each setting is below one heading of docs/CONFIGURATION.md.
func TestSubjects(t *testing.T) {
	var have, want []string
	for _, s := range subjects {
		have = append(have, strings.Fields(s.names)...)
	}
	for _, s := range settings {
		want = append(want, s.name)
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the subjects have\n%q, the settings are\n%q", have, want)
	}
}

// markdown is the whole of docs/CONFIGURATION.md.
func markdown() string {
	var b strings.Builder
	b.WriteString(`<!-- Written by: go test ./internal/config -update -->

# Configuration

Each setting is a flag, a variable (` + "`--max-clients` is `" + envName("max-clients") + "`" + `) and a key of the
YAML file that ` + "`--config`" + ` names. The flag wins over the variable, the variable over the file. An unknown key or
` + "`LOCKPROXY_`" + ` variable is a fault. All faults are reported at once.

- Durations: ` + "`500ms`, `30s`, `1h30m`" + `. Sizes are Redis': ` + "`1k`" + ` is 1000 bytes, ` + "`1kb`" + ` is 1024.
- Lists: the flag repeated, commas, or a YAML list.
- [Live](OPERATIONS.md#settings-that-change-while-it-runs) settings in the file change while lockproxy runs.
`)
	for _, s := range subjects {
		fmt.Fprintf(&b, "\n## %s\n\n| flag | default | live | meaning |\n|---|---|---|---|\n", s.title)
		for name := range strings.FieldsSeq(s.names) {
			writeRow(&b, findSetting(name))
		}
	}
	fmt.Fprintf(&b, "| `--check-config` | | | %s |\n| `--version` | | | %s |\n", checkMeaning, versionMeaning)
	fmt.Fprintf(&b, "| `--help` | | | %s |\n| `--help-all` | | | %s |\n", helpMeaning, helpAllMeaning)
	return b.String()
}

// writeRow writes the row of a setting.
func writeRow(b *strings.Builder, s *setting) {
	def, isLive, meaning := "", "", s.meaning
	if s.def != "" {
		def = "`" + s.def + "`"
	}
	if slices.Contains(live, s.name) {
		isLive = "yes"
	}
	if s.list {
		meaning += " A list."
	}
	row := fmt.Sprintf("| `--%s` | %s | %s | %s |\n", s.name, def, isLive, strings.ReplaceAll(meaning, "|", `\|`))
	b.WriteString(strings.ReplaceAll(row, "  ", " "))
}
