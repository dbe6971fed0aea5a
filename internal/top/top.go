// Package top is `lockproxy top`: who holds and waits for which lock, printed again and again. It is a client of a
// lockproxy, and asks by LOCKPROXY.
package top

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/proxyclient"
)

const help = `lockproxy top shows who holds and waits for which lock, every two seconds.
Usage: lockproxy top [flags]

` + proxyclient.Help + `  --every TIME      how often it asks (2s)
  --rows N          how many rows of a list it asks for (10)
  --once            print all lists once, and end

The locks are those of all proxies before the same Redis. Locks of Redisson are found
by LOCKLIST SCAN 0 at redis-cli. The user must be one of the proxy's --operators.
`

// commandLine are what the command line says.
type commandLine struct {
	proxy *proxyclient.Client
	every time.Duration
	rows  int
	once  bool
}

const (
	minEvery = 100 * time.Millisecond
	maxRows  = 10000
)

func parse(args []string) (o commandLine, err error) {
	fs := flag.NewFlagSet("top", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	client := proxyclient.Flags(fs, "lockproxy-top")
	fs.DurationVar(&o.every, "every", 2*time.Second, "")
	fs.IntVar(&o.rows, "rows", 10, "")
	fs.BoolVar(&o.once, "once", false, "")
	if err = fs.Parse(args); err != nil {
		return o, err
	}
	var faults []error
	if o.proxy, err = client(); err != nil {
		faults = append(faults, err)
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

// Main shows what args ask for until the process is ended, or once, and returns the exit code: 0, 1 after trouble, 2 for
// wrong arguments.
func Main(args []string) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		Usage(os.Stdout)
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "lockproxy top: %v\n", err)
		return 2
	}
	again := time.NewTicker(o.every)
	for before := (facts{}); ; <-again.C {
		now, err := ask(o.proxy, o.rows)
		switch {
		case err != nil && o.once:
			fmt.Fprintf(os.Stderr, "lockproxy top: %v\n", err)
			return 1
		case err != nil:
			show([]string{display.Whole(err.Error())})
		default:
			show(now.lines(before))
			before = now
		}
		if o.once {
			return 0
		}
	}
}

// clear has a terminal show what comes next, and nothing else.
const clear = "\x1b[H\x1b[2J"

// show prints lines: at a terminal as much of them as it has room for, in place of those before.
func show(lines []string) {
	out := int(os.Stdout.Fd())
	if !term.IsTerminal(out) {
		fmt.Println(strings.Join(lines, "\n") + "\n")
		return
	}
	if width, height, err := term.GetSize(out); err == nil {
		lines = lines[:min(len(lines), max(1, height-1))]
		for i := range lines {
			lines[i] = clip(lines[i], width)
		}
	}
	fmt.Println(clear + strings.Join(lines, "\n"))
}
