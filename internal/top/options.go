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
  --once            print all lists once, as text, and end

It shows this lockproxy's locks only: those of other proxies and of Redisson are
found by LOCKLIST SCAN 0, one by its name by LOCKINFO, both at redis-cli.

The user must be one of the proxy's --operators. Keys: 1 to 6 or Tab for another
list, / to show only rows with some text in them, p to pause, q to leave.
`

// options are what the command line says.
type options struct {
	target upstream.Target
	every  time.Duration
	rows   int
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
