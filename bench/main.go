// Command bench measures lockproxy beside its peers on this machine: straight
// to Redis, twemproxy, a bare byte relay, and lockproxy, in interleaved rounds
// of which it prints the medians as Markdown tables with aligned columns.
//
//	go run ./bench [-quick] [-rounds n] [-seconds s] [-only data|locks|scripts] [-json file]
//
// It needs Linux (/proc), redis-server and redis-benchmark; twemproxy
// (nutcracker) if it is there. It starts every server itself on free loopback
// ports and stops them all. CPU per command is the process' own, user and
// system, and far steadier than throughput on a shared machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/lockproxy/lockproxy/internal/program"
)

// settings are what the flags chose.
type settings struct {
	rounds   int
	seconds  float64 // each measurement's aim
	warm     time.Duration
	only     string
	jsonFile string
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == relayCommand {
		fmt.Fprintln(os.Stderr, relay(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	program.Main("bench", parse, run)
}

func parse(args []string) (settings, error) {
	s := settings{warm: 300 * time.Millisecond}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.IntVar(&s.rounds, "rounds", 3, "rounds to take the median of")
	fs.Float64Var(&s.seconds, "seconds", 3, "length of each measurement")
	quick := fs.Bool("quick", false, "one round of half a second each, to see that everything runs")
	fs.StringVar(&s.only, "only", "", "measure the `part` \"data\", \"locks\" or \"scripts\" alone")
	fs.StringVar(&s.jsonFile, "json", "", "write every round's figures to this `file` too")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	if *quick {
		s.rounds, s.seconds = 1, 0.5
	}
	switch {
	case fs.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case s.only != "" && s.only != "data" && s.only != "locks" && s.only != "scripts":
		return s, fmt.Errorf("-only %q: data, locks or scripts", s.only)
	case s.rounds < 1 || s.seconds <= 0:
		return s, errors.New("-rounds and -seconds must be above 0")
	}
	return s, nil
}

// run measures, prints, and leaves no process and no file behind. What was
// measured before a signal is still printed.
func run(ctx context.Context, s settings) error {
	dir, err := os.MkdirTemp("", "lockproxy-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := startEnvironment(ctx, dir, s.only != "scripts")
	if err != nil {
		return err
	}
	defer b.stop()

	rep := newReport(ctx, s)
	for _, part := range []struct {
		name    string
		measure func(context.Context, settings, *environment, *report) error
	}{{"data", measureData}, {"locks", measureLocks}, {"scripts", measureScripts}} {
		if err == nil && (s.only == "" || s.only == part.name) {
			err = part.measure(ctx, s, b, rep)
		}
	}
	rep.print(os.Stdout, b)
	if s.jsonFile != "" {
		err = errors.Join(err, rep.save(s.jsonFile, b))
	}
	return err
}

// progress tells whoever waits what is being measured; tables go to stdout.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
