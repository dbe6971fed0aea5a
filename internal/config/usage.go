package config

import (
	"fmt"
	"io"
	"strings"
)

// brief is the line that --help shows of a setting.
type brief struct{ name, value, text string }

// briefs are the settings that most people need.
var briefs = []brief{
	{"upstream", "URL", "the Redis to serve; none: a store in memory"},
	{"locks", "URL", "keep the locks on this Redis"},
	{"quorum", "URL,URL,URL", "keep the locks on these masters (Redlock)"},
	{"listen", "HOST:PORT", "serve clients here"},
	{"tls-listen", "HOST:PORT", "and here with TLS"},
	{"tls-cert", "FILE", "certificate to show there"},
	{"tls-key", "FILE", "its key"},
	{"tls-client-ca", "FILE", "authorities of the clients' certificates"},
	{"upstream-tls-ca", "FILE", "authorities to trust with rediss://"},
	{"protected-mode", "yes|no", "no password in Redis: local clients only"},
	{"lock-watchdog-timeout", "TIME", "lease of a lock that is renewed"},
	{"max-hold", "TIME", "renew no lock for longer"},
	{"drain-timeout", "TIME", "at the end: wait for locks held"},
	{"max-clients", "N", "most clients at once"},
	{"upstream-timeout", "TIME", "longest wait for a reply of Redis"},
	{"deny", "NAME,NAME", "commands to refuse"},
	{"metrics-listen", "HOST:PORT", "/metrics, /livez and /readyz"},
	{"log-level", "LEVEL", "debug, info, warn or error"},
	{"log-format", "FORMAT", "text or json"},
	{"config", "FILE", "YAML file with any settings"},
}

const title = "lockproxy is a proxy for Redis that adds locks. Usage: lockproxy [flags]\n" +
	"lockproxy run --lock NAME -- command ... holds a lock while a command runs.\n" +
	"lockproxy top shows who holds and waits for which lock.\n" +
	"lockproxy health says whether a lockproxy is ready.\n\n"

const health = `lockproxy health asks the lockproxy of this machine that has these settings whether
it is ready for clients: exit code 0, or 1 and why not; 2 if a setting is wrong.
Usage: lockproxy health [flags]

  --live            ask whether it is alive: it need not be ready

It takes all flags of lockproxy, its LOCKPROXY_ variables and its --config file.
It asks /readyz, or /livez, at --metrics-listen. Without that it sends PING to the
first of --listen and --tls-listen, with --live to --admin-socket if there is one.
It waits for 2 seconds.
`

// UsageHealth prints what `lockproxy health --help` shows.
func UsageHealth(w io.Writer) { fmt.Fprint(w, health) }

// Usage prints what --help shows: a screen of the settings that most people need.
func Usage(w io.Writer) {
	fmt.Fprint(w, title)
	for _, b := range briefs {
		text := b.text
		switch def := findSetting(b.name).def; def {
		case "":
		case "0":
			text += " (default: off)"
		default:
			text += " (" + def + ")"
		}
		fmt.Fprintf(w, "  %-28s  %s\n", "--"+b.name+" "+b.value, text)
	}
	fmt.Fprintf(w, `  %-28s  print the version
  %-28s  every setting, explained

URL: redis://[user:password@]host:port[/db], rediss://..., unix:///path, also
  redis-cluster://host:port[,host:port...] and
  redis+sentinel://host:port[,host:port...]/master-name
Each flag is also a variable, as %s for
--log-level, and a key of the --config file.
`, "--version", "--help-all", envName("log-level"))
}

// findSetting is the setting of that name; nil: there is none.
func findSetting(name string) *setting {
	for i := range settings {
		if settings[i].name == name {
			return &settings[i]
		}
	}
	return nil
}

// UsageAll prints what --help-all shows: every setting.
func UsageAll(w io.Writer) {
	fmt.Fprint(w, title)
	for _, s := range settings {
		def := ""
		if s.def != "" {
			def = " (default " + s.def + ")"
		}
		fmt.Fprintf(w, "  --%s%s\n        %s\n", s.name, def, strings.ReplaceAll(s.meaning, "`", ""))
	}
	fmt.Fprintf(w, "  --check-config\n        %s\n  --version\n        %s\n  --help\n        %s\n\nEach flag is also a variable (--log-level is %s) and a key of the --config file.\n",
		checkMeaning, versionMeaning, helpMeaning, envName("log-level"))
}

func envName(flag string) string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
