// Command tcl runs Redis' own test suite, its TCL tests, against a Redis
// straight and through lockproxy, unit by unit, and compares test by test.
//
//	go run ./integration/tcl [-units unit/multi,unit/pubsub] [-resp 3] [-write docs/SUITES.md] …
//
// README.md in this folder says how. It fails when a test that passes straight
// does not pass through lockproxy and has no line in skip.txt, or when a unit
// does not come to its end. It needs tclsh, redis-server and, to fetch the
// suite, apt or git; nothing fetched lands in the repository.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/program"
)

// denied are the tags whose tests need what a plain endpoint does not promise:
// the server's own process, its replicas, its memory limits, or much time.
var denied = []string{
	"slow", "needs:debug", "needs:repl", "needs:save", "needs:config-maxmemory", "needs:config-resetstat",
	"needs:reset", "needs:latency", "needs:pfdebug", "large-memory",
}

// settings are what the flags chose.
type settings struct {
	mode    string // direct or proxy
	resp    int
	suite   string
	server  string
	proxy   string // a lockproxy, "" builds this module's
	args    []string
	units   []string
	jobs    int
	timeout time.Duration // one unit's
	stall   time.Duration // longest without a test's end
	deny    []string
	multiDB bool
	nodes   int // masters of the cluster behind lockproxy, 0: one server
	fresh   bool
	skips   string
	write   string
	logs    string
	cache   string
}

func main() {
	program.Main("tcl", parse, run)
}

func parse(args []string) (settings, error) {
	var s settings
	fs := flag.NewFlagSet("tcl", flag.ContinueOnError)
	fs.StringVar(&s.mode, "mode", "proxy", "direct: the baseline alone; proxy: through lockproxy, compared with the baseline")
	fs.IntVar(&s.resp, "resp", 2, "protocol the suite speaks; 3 needs a suite of Redis 7.2 or later, or Valkey")
	fs.StringVar(&s.suite, "suite", "", "a `source`: a folder, debian:<suite>/<package>, or <git url>#<tag>; default: the source package of the installed redis-server")
	fs.StringVar(&s.server, "server", "", "the `program` to serve with; default: the one of -suite debian:…, or redis-server")
	fs.StringVar(&s.proxy, "proxy", "", "the lockproxy `program`; default: built from this module")
	proxyArgs := fs.String("proxy-args", "", "more `flags` for lockproxy, separated by blanks")
	units := fs.String("units", "", "run these `units` alone, separated by commas")
	fs.IntVar(&s.jobs, "j", 1, "units at a time")
	fs.DurationVar(&s.timeout, "timeout", 10*time.Minute, "longest a unit may take")
	fs.DurationVar(&s.stall, "stall", 3*time.Minute, "longest a unit may go without finishing a test, whole seconds")
	allow := fs.String("allow", "", "`tags` to run that are denied by default, separated by commas: "+strings.Join(denied, " "))
	fs.BoolVar(&s.multiDB, "multidb", false, "let the suite SELECT other databases (default: --singledb)")
	fs.IntVar(&s.nodes, "nodes", 0, "put a cluster of so many `masters` behind lockproxy; the baseline stays one server, both with the suite's --cluster-mode")
	fs.BoolVar(&s.fresh, "fresh", false, "measure the baseline again rather than take it from the cache")
	fs.StringVar(&s.skips, "skip", filepath.FromSlash("integration/tcl/skip.txt"), "the `file` of known failures")
	fs.StringVar(&s.write, "write", "", "write this `page` and the lists in a folder beside it, replacing what they have of the same run")
	fs.StringVar(&s.logs, "logs", "", "keep what the suite, the server and lockproxy print in this `folder`")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	s.args, s.units = strings.Fields(*proxyArgs), words(*units)
	s.deny = without(denied, words(*allow))
	var err error
	s.cache, err = cacheDir()
	switch {
	case err != nil:
		return s, err
	case fs.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case s.mode != "direct" && s.mode != "proxy":
		return s, fmt.Errorf("-mode %q: direct or proxy", s.mode)
	case s.resp != 2 && s.resp != 3:
		return s, fmt.Errorf("-resp %d: 2 or 3", s.resp)
	case s.nodes < 0 || s.nodes > 0 && s.multiDB:
		return s, errors.New("-nodes must not be negative, and goes without -multidb: a cluster has one database")
	case s.jobs < 1:
		return s, errors.New("-j must be above 0")
	case s.write != "" && len(s.units) > 0:
		return s, errors.New("-write is for whole runs, without -units")
	case s.write != "" && s.mode == "direct":
		return s, errors.New("-write is for -mode proxy")
	}
	return s, nil
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func without(all, some []string) []string {
	var left []string
	for _, a := range all {
		keep := true
		for _, b := range some {
			keep = keep && a != b
		}
		if keep {
			left = append(left, a)
		}
	}
	return left
}

// cacheDir is where suites and baselines are kept between runs.
func cacheDir() (string, error) {
	if dir := os.Getenv("TESTS_CACHE"); dir != "" {
		return filepath.Abs(filepath.Join(dir, "tcl"))
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the suite, set TESTS_CACHE: %w", err)
	}
	return filepath.Join(dir, "lockproxy", "tcl"), nil
}

// progress tells whoever waits; the verdict goes to stdout.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
