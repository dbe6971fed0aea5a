package runlock

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

const help = `lockproxy run holds a lock while a command runs.
Usage: lockproxy run --lock NAME [flags] -- command [argument ...]

  --lock NAME       the lock to hold
  --wait TIME       wait so long for it; 0: not at all (default: for ever)
  --fair            first come, first served
  --lease TIME      renewed while the command runs, three times in it (30s)
  --address URL     the lockproxy to ask: host:port, redis://user:password@host:port,
                    rediss://... or unix:///path; also LOCKPROXY_ADDRESS
                    (127.0.0.1:6380)

The command gets LOCKPROXY_LOCK, and in LOCKPROXY_TOKEN the fencing token. Signals
are passed on to it, but for SIGINT and SIGQUIT at a terminal, whose keys send them
to both. If the lock is lost it gets SIGTERM, and SIGKILL a third of a lease later.
Exit code: the command's own, 128 + n after signal n; 123 the lock was lost; 124
somebody else held it; 125 other trouble; 126, 127 no such command.
`

// options are what the command line says.
type options struct {
	target  upstream.Target
	verb    string // LOCK or FAIRLOCK
	key     string
	wait    time.Duration // below 0: for ever
	lease   time.Duration
	command []string
}

// minLease leaves a third of it for a round trip and a command's end.
const minLease = time.Second

func parse(args []string) (o options, err error) {
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.key, "lock", "", "")
	fs.DurationVar(&o.wait, "wait", -1, "")
	fs.DurationVar(&o.lease, "lease", 30*time.Second, "")
	fair := fs.Bool("fair", false, "")
	address := fs.String("address", "", "")
	if err = fs.Parse(args); err != nil {
		return o, err
	}
	waits := false
	fs.Visit(func(f *flag.Flag) { waits = waits || f.Name == "wait" })
	o.command, o.verb = fs.Args(), "LOCK"
	if *fair {
		o.verb = "FAIRLOCK"
	}
	var faults []error
	if o.target, err = upstream.ParseProxy(*address); err != nil {
		faults = append(faults, fmt.Errorf("--address: %w", err))
	}
	if o.key == "" {
		faults = append(faults, errors.New("--lock: no name"))
	}
	if waits && o.wait < 0 {
		faults = append(faults, fmt.Errorf("--wait: %v is below 0", o.wait))
	}
	if o.lease < minLease {
		faults = append(faults, fmt.Errorf("--lease: %v is below %v", o.lease, minLease))
	}
	if len(o.command) == 0 {
		faults = append(faults, errors.New("no command"))
	}
	return o, errors.Join(faults...)
}

// millis are whole milliseconds, at least one, as the verbs take them.
func millis(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }
