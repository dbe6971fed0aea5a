package top

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

const help = `lockproxy top shows who holds and waits for which lock at a lockproxy, as top(1) does.
Usage: lockproxy top [flags]

  --address URL     the lockproxy to ask: host:port, redis://user:password@host:port,
                    rediss://... or unix:///path; of several the first; also
                    LOCKPROXY_ADDRESS (127.0.0.1:6380)
  --every TIME      how often it asks (1s)
  --rows N          how many rows of a list it asks for (200)
  --all             show the locks of all proxies of this Redis
  --once            print all lists once, as text, and end

Locks of Redisson are found by LOCKLIST SCAN 0 at redis-cli.

The user must be one of the proxy's --operators. Keys:

  1 to 9, Tab       another list
  Enter             the lock of the selected row: who holds it, who waits, where
  Esc               back to the list; there it ends the filter
  /                 only rows with some text in them
  s, S              sort by the next column, or the one before; then r: reverse
  a                 locks and waiters of all proxies, or of this one
  p                 pause
  q                 leave
`

// options are what the command line says.
type options struct {
	target upstream.Target
	every  time.Duration
	rows   int
	all    bool
	once   bool
}

const (
	minEvery = 100 * time.Millisecond
	maxRows  = 10000
)

func parse(args []string) (o options, err error) {
	fs := flag.NewFlagSet("top", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	address := fs.String("address", "", "")
	fs.DurationVar(&o.every, "every", time.Second, "")
	fs.IntVar(&o.rows, "rows", 200, "")
	fs.BoolVar(&o.all, "all", false, "")
	fs.BoolVar(&o.once, "once", false, "")
	if err = fs.Parse(args); err != nil {
		return o, err
	}
	var faults []error
	targets, err := upstream.ParseProxies(*address)
	if err != nil {
		faults = append(faults, fmt.Errorf("--address: %w", err))
	} else {
		o.target = targets[0]
	}
	if o.every < minEvery {
		faults = append(faults, fmt.Errorf("--every: %v is below %v", o.every, minEvery))
	}
	if o.rows < 1 || o.rows > maxRows {
		faults = append(faults, fmt.Errorf("--rows: %d is not from 1 to %d", o.rows, maxRows))
	}
	if fs.NArg() > 0 {
		faults = append(faults, fmt.Errorf("%q is no flag", fs.Arg(0)))
	}
	return o, errors.Join(faults...)
}

// Usage prints what `lockproxy top --help` shows.
func Usage(w io.Writer) { fmt.Fprint(w, help) }
