// Command bench measures lockproxy beside its peers on this machine, in interleaved rounds of which it prints the medians as Markdown
// tables with aligned columns: ordinary commands straight to Redis and through other proxies; locks beside other libraries' on the same
// Redis; what lockproxy itself costs; and what its scripts cost Redis.
//
//	go run ./bench [-short|-quick] [-rounds n] [-seconds s] [-watch s] [-only data|locks|proxies|own|scripts] [-write docs/PERFORMANCE.md]
//
// It needs Linux, redis-server and redis-benchmark. Of the other proxies those are measured that are in PATH (nutcracker, haproxy,
// predixy, envoy), of the rivals in bench/rivals those whose toolchain and packages can be had; what is missing is said. It starts
// every server itself on free loopback ports and stops them all. CPU is the process' own, user and system, and far steadier than
// throughput on a shared machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/bench/contest"
	"github.com/lockproxy/lockproxy/internal/program"
)

// settings are what the flags chose.
type settings struct {
	rounds  int
	seconds float64 // each measurement's aim
	warm    float64 // seconds until a contestant counts
	watch   float64 // seconds that watched locks are looked at
	only    string
	page    string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == contestCommand {
		contest.Main(os.Args[2:], raw)
		return
	}
	if len(os.Args) > 3 && floors[os.Args[1]] != nil {
		fmt.Fprintln(os.Stderr, floors[os.Args[1]](os.Args[2], os.Args[3:]))
		os.Exit(1)
	}
	program.Main("bench", parse, run)
}

func parse(args []string) (settings, error) {
	var s settings
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.IntVar(&s.rounds, "rounds", 3, "rounds to take the median of")
	fs.Float64Var(&s.seconds, "seconds", 1.5, "length of each measurement")
	fs.Float64Var(&s.warm, "warm", 0.5, "seconds that a contestant runs before it counts; a JVM ten times as long")
	fs.Float64Var(&s.watch, "watch", 180, "seconds that 100,000 watched locks are looked at")
	short := fs.Bool("short", false, "one round, and 30 s of watched locks: a few minutes")
	quick := fs.Bool("quick", false, "one round of half a second each, to see that everything runs")
	fs.StringVar(&s.only, "only", "", "measure the `part` \"data\", \"locks\", \"proxies\", \"own\" or \"scripts\" alone")
	fs.StringVar(&s.page, "write", "", "write this `page`, and its charts and lists in a folder beside it with its name in small letters")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	switch {
	case *quick:
		s.rounds, s.seconds, s.warm, s.watch = 1, 0.5, 0.3, 3
	case *short:
		s.rounds, s.watch = 1, 30
	}
	switch {
	case fs.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case !slices.Contains([]string{"", "data", "locks", "proxies", "own", "scripts"}, s.only):
		return s, fmt.Errorf("-only %q: data, locks, proxies, own or scripts", s.only)
	case s.rounds < 1 || s.seconds <= 0 || s.warm < 0 || s.watch <= 0:
		return s, errors.New("-rounds, -seconds and -watch must be above 0")
	}
	return s, nil
}

func (s settings) wants(part string) bool { return s.only == "" || s.only == part }

// run measures, prints, and leaves no process and no file behind. What was measured before a signal is still printed.
func run(ctx context.Context, s settings) error {
	manyFiles()
	dir, err := os.MkdirTemp("", "lockproxy-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rep := newReport(s)
	b, err := startEnvironment(ctx, dir, s)
	if err != nil {
		return err
	}
	defer b.stop()

	parts := []struct {
		name    string
		measure func(context.Context, settings, *environment, *report) error
	}{{"data", measureData}, {"locks", measureLocks}, {"proxies", measureHerds}, {"own", measureOwn}, {"scripts", measureScripts}}
	for _, p := range parts {
		if s.wants(p.name) && err == nil {
			err = p.measure(ctx, s, b, rep)
		}
	}
	rep.finish(b)
	rep.print(os.Stdout)
	if s.page != "" && err == nil {
		err = rep.write(ctx, s.page)
	}
	return err
}

// manyFiles lets this process and those it starts have as many open files as they may: 10,000 clients are 20,000 of a proxy.
func manyFiles() {
	const wanted = 65536
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return // what needs more will say so
	}
	more := unix.Rlimit{Cur: max(limit.Max, wanted), Max: max(limit.Max, wanted)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &more) != nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) // likewise
	}
}

// progress tells whoever waits what is being measured; tables go to stdout.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}
