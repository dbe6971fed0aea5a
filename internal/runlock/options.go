package runlock

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxyclient"
)

const help = `lockproxy run holds a lock while a command runs.
Usage: lockproxy run --lock NAME [flags] -- command [argument ...]

  --lock NAME       the lock to hold; said several times: all of them, or none
  --wait TIME       wait so long for it; 0: ask once (default: for ever)
  --fair            first come, first served (one lock)
  --shared          read: others may, too (one lock)
  --exclusive       write: nobody else may, nor read with --shared (one lock)
  --limit N         as many as N may hold it at once (one lock)
  --at-least TIME   hold it for so long, also after a command that ends sooner (0s)
  --lease TIME      how long it outlives this process (30s; --at-least, if that is longer)
` + proxyclient.Help + `
The command gets LOCKPROXY_LOCK, and in LOCKPROXY_TOKEN the fencing token; of several
locks, one a line. Signals are passed on to it, but for SIGINT and SIGQUIT at a
terminal, whose keys send them to both. If the lock is lost it gets SIGTERM, and
SIGKILL a third of a lease later.
Exit code: the command's own, 128 + n after signal n; 123 the lock was lost; 124
somebody else held it; 125 other trouble; 126, 127 no such command.
`

// commandLine are what the command line says.
type commandLine struct {
	proxy   *proxyclient.Client
	keys    []string      // each once
	verb    string        // that takes them
	limit   int           // how many may hold the lock at once; 0: as the verb has it
	wait    time.Duration // 0: ask once; below 0, when it is not given: for ever
	atLeast time.Duration
	lease   time.Duration
	command []string
}

// minLease leaves a third of it for a round trip and a command's end.
const minLease = time.Second

func parse(args []string) (o commandLine, err error) {
	o.verb = "LOCK"
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Func("lock", "", func(key string) error {
		if !slices.Contains(o.keys, key) {
			o.keys = append(o.keys, key)
		}
		return nil
	})
	fs.DurationVar(&o.wait, "wait", -1, "")
	kinds := 0
	for name, verb := range map[string]string{"fair": "FAIRLOCK", "shared": "RLOCK", "exclusive": "WLOCK"} {
		fs.BoolFunc(name, "", func(string) error {
			o.verb = verb
			kinds++
			return nil
		})
	}
	fs.Func("limit", "", func(n string) (err error) {
		kinds++
		if o.limit, err = strconv.Atoi(n); err != nil || o.limit < 1 {
			err = errors.New("not a number above 0")
		}
		return err
	})
	fs.DurationVar(&o.atLeast, "at-least", 0, "")
	fs.DurationVar(&o.lease, "lease", 30*time.Second, "")
	client := proxyclient.Flags(fs, "lockproxy-run")
	if err = fs.Parse(args); err != nil {
		return o, err
	}
	waits := false
	fs.Visit(func(f *flag.Flag) { waits = waits || f.Name == "wait" })
	o.command = fs.Args()
	var faults []error
	if o.proxy, err = client(); err != nil {
		faults = append(faults, err)
	}
	for _, rule := range []struct {
		broken bool
		fault  string
	}{
		{len(o.keys) == 0 || slices.Contains(o.keys, ""), "--lock: no name"},
		{kinds > 1, "--fair, --shared, --exclusive, --limit: one of them at most"},
		{kinds > 0 && len(o.keys) > 1, "--fair, --shared, --exclusive, --limit: with one --lock only"},
		{waits && o.wait < 0, fmt.Sprintf("--wait: %v is below 0", o.wait)},
		{o.atLeast < 0, fmt.Sprintf("--at-least: %v is below 0", o.atLeast)},
		{o.lease < minLease, fmt.Sprintf("--lease: %v is below %v", o.lease, minLease)},
		{len(o.command) == 0, "no command"},
	} {
		if rule.broken {
			faults = append(faults, errors.New(rule.fault))
		}
	}
	return o, errors.Join(faults...)
}

// names are the locks as they are shown.
func (o commandLine) names() string { return strings.Join(o.keys, ", ") }

// takeVerb is the command that takes the locks, without its options.
func (o commandLine) takeVerb() []string {
	if len(o.keys) > 1 {
		return append([]string{"MULTILOCK", strconv.Itoa(len(o.keys))}, o.keys...)
	}
	if o.limit > 0 {
		return []string{o.verb, o.keys[0], "LIMIT", strconv.Itoa(o.limit)}
	}
	return []string{o.verb, o.keys[0]}
}

// millis are whole milliseconds, at least one, as the verbs take them.
func millis(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }
