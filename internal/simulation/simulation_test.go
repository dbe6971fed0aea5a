package simulation

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
)

var (
	seed    = flag.Uint64("seed", 0, "of the first run; the next ones count on from it. 0: 1, with -forever the time")
	runs    = flag.Int("runs", 0, "how many runs, each with a seed of its own; 0: 100, with -short 50")
	length  = flag.Duration("duration", 0, "how much simulated time each run has, beside its end, herd a quarter of it; 0: 1m, in the long forms 3m")
	gap     = flag.Duration("gap", 5*time.Second, "most between two sections of a user; 0: 1 s, 5 s and 20 s in turn")
	only    = flag.String("profile", "", "only these, with commas")
	where   = flag.String("store", "", "only these: single, cluster, quorum3, quorum5")
	forever = flag.Bool("forever", false, "with new seeds until one fails")
	sent    = flag.Bool("commands", false, "a failed run's log has what Redis was sent and answered, too")
	mutants = flag.Bool("mutations", false, "run the mutations")
	within  = flag.Duration("within", 0, "with new seeds until so much time has passed; 0: -runs")
	figures = flag.String("figures", "", "a file to which each run adds its figures, as a line of JSON")
	odd     = flag.Bool("odd", false, "this is the second process of TestSimulation, which plays every other run")
	out     = flag.String("out", "", "where the log of a failed run goes; empty: the folder for temporary files")
)

// long says whether tests are to have their long form.
var long = os.Getenv("TESTS_LONG") == "1"

// combination is a profile on a store that it takes.
type combination struct {
	p   *profile
	s   store
	gap time.Duration // most between two sections of a user
}

func chosen(names, name string) bool {
	return names == "" || strings.Contains(","+names+",", ","+name+",")
}

func combinations() (all []combination) {
	for _, p := range profiles {
		for _, s := range stores {
			if p.takes(s) && chosen(*only, p.name) && chosen(*where, s.name) {
				all = append(all, combination{p, s, *gap})
			}
		}
	}
	return all
}

func TestMain(m *testing.M) {
	flag.Parse()
	*runs = cmp.Or(*runs, map[bool]int{false: 100, true: 25}[testing.Short()])
	if *length == 0 {
		*length = time.Minute
		if long || *forever || *within > 0 || *mutants {
			*length = 3 * time.Minute
		}
	}
	repeatable()
	runtime.GOMAXPROCS(1)   // two processors would run goroutines in an order that no seed decides
	debug.SetGCPercent(400) // what is simulated is small, and makes much garbage
	os.Exit(m.Run())
}

// Locks keep every promise in simulated time, whatever is hurt meanwhile.
func TestSimulation(t *testing.T) {
	first := *seed
	switch {
	case first == 0 && (*forever || *within > 0):
		first = uint64(time.Now().Unix())
	case first == 0:
		first = 1
	}
	all := combinations()
	total, began := map[string]*result{}, time.Now()
	more := func(i int) bool {
		if *within > 0 {
			return time.Since(began) < *within
		}
		return i < *runs || *forever
	}
	halves := !*forever && (*runs > 1 || *within > 0) && runtime.NumCPU() > 1
	if halves && !*odd {
		defer besides(t, first)()
	}
	i := 0
	for ; more(i); i++ {
		if halves && *odd != (i%2 == 1) {
			continue
		}
		c, s := all[i%len(all)], first+uint64(i)
		c.gap = *gap
		if c.gap == 0 {
			c.gap = []time.Duration{second, 5 * second, 20 * second}[i/len(all)%3]
		}
		r := play(t, c, s, *length, watched{commands: *sent})
		r.note(t, c, s)
		if len(r.wrong) > 0 {
			t.Fatal(report(c, s, r))
		}
		if total[c.s.name] == nil {
			total[c.s.name] = &result{}
		}
		total[c.s.name].add(r)
		if *forever && i%100 == 99 {
			t.Logf("%d runs, the last seed is %d\n%s", i+1, s, tell(total, time.Since(began)))
		}
	}
	which := map[bool]string{false: "", true: ", every other one"}[halves]
	t.Logf("seeds %d to %d%s\n%s", first, first+uint64(i)-1, which, tell(total, time.Since(began)))
}

// besides starts a process that plays every other run, since one process has one processor. What it returns waits for it and passes on
// what it says: a failure there is one here, with its whole report.
func besides(t *testing.T, first uint64) (wait func()) {
	second := exec.Command(os.Args[0], "-test.run=^TestSimulation$", "-test.v", "-test.timeout="+flag.Lookup("test.timeout").Value.String(), "-odd", fmt.Sprintf("-seed=%d", first),
		fmt.Sprintf("-runs=%d", *runs), fmt.Sprintf("-duration=%v", *length), fmt.Sprintf("-gap=%v", *gap), "-profile="+*only, "-store="+*where,
		fmt.Sprintf("-within=%v", *within), "-figures="+*figures,
		fmt.Sprintf("-commands=%v", *sent), "-out="+*out)
	var said bytes.Buffer
	second.Stdout, second.Stderr = &said, &said
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := second.Wait(); err != nil {
			t.Errorf("the process with every other run: %v\n%s", err, &said)
			return
		}
		t.Logf("the process with every other run:\n%s", &said)
	}
}

// note adds the figures of a run to the file of -figures.
func (r *result) note(t *testing.T, c combination, seed uint64) {
	if *figures == "" {
		return
	}
	f := history.Round("simulation", seed, r.proxies, r.users, r.simulated)
	f.Count(r.ops, r.faults)
	f.Violations = len(r.wrong)
	if err := f.Append(*figures); err != nil {
		t.Error(err)
	}
}

func (r *result) add(o *result) {
	r.ops = append(r.ops[:0:0], make([]*history.Op, len(r.ops)+len(o.ops))...) // they are counted only
	r.faults = append(r.faults[:0:0], make([]history.Fault, len(r.faults)+len(o.faults))...)
	r.grants, r.unknown, r.short, r.scripts = r.grants+o.grants, r.unknown+o.unknown, r.short+o.short, r.scripts+o.scripts
	r.keys, r.undecided, r.fair, r.fenced = r.keys+o.keys, r.undecided+o.undecided, r.fair+o.fair, r.fenced+o.fenced
	r.simulated += o.simulated
}

func tell(total map[string]*result, took time.Duration) string {
	var b strings.Builder
	simulated, ops := time.Duration(0), 0
	for _, s := range stores {
		r := total[s.name]
		if r == nil {
			continue
		}
		fmt.Fprintf(&b, "%s: %v simulated, %d calls (%d grants, %d of unknown outcome, %d NOQUORUM) on %d keys, %d faults, %d commands to Redis, %d fenced writes exact, %d fair grants in order, %d keys not decided\n",
			s.name, r.simulated.Round(time.Second), len(r.ops), r.grants, r.unknown, r.short, r.keys, len(r.faults), r.scripts, r.fenced, r.fair, r.undecided)
		simulated, ops = simulated+r.simulated, ops+len(r.ops)
	}
	fmt.Fprintf(&b, "in all %v simulated in %v, %.0f times as fast as time, %d calls", simulated.Round(time.Second), took.Round(10*ms), simulated.Seconds()/took.Seconds(), ops)
	return b.String()
}

// report writes what was recorded into a new folder, and says what is wrong with it.
func report(c combination, seed uint64, r *result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "profile %s, store %s, seed %d: %d violations after %v simulated\n", c.p.name, c.s.name, seed, len(r.wrong), r.simulated)
	dir, err := os.MkdirTemp(*out, fmt.Sprintf("lockproxy-simulation-%s-%s-%d-", c.p.name, c.s.name, seed))
	if err == nil {
		err = history.WriteFile(filepath.Join(dir, "history.jsonl"), r.ops, r.faults)
	}
	b.WriteString(history.Tell(r.wrong, dir))
	text := r.log() + "\n" + b.String()
	if r.commands != nil {
		text += "\nwhat Redis was sent, and answered:\n" + r.commands.String()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "log.txt"), []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(&b, "the log could not be written:", err)
	} else {
		fmt.Fprintf(&b, "log: %s\n", dir)
	}
	fmt.Fprintf(&b, "again: go test ./internal/simulation -run '^TestSimulation$' -count=1 -v -args -profile %s -store %s -seed %d -gap %v -duration %v -runs 1", c.p.name, c.s.name, seed, c.gap, *length)
	return b.String()
}

// log is one line for each call, and each fault, in the order of time.
func (r *result) log() string {
	var b strings.Builder
	faults := r.faults
	tellFaults := func(until int64) {
		for len(faults) > 0 && faults[0].At <= until {
			fmt.Fprintf(&b, "%12s *** %s\n", history.At(faults[0].At), faults[0].What)
			faults = faults[1:]
		}
	}
	ops := slices.Clone(r.ops)
	slices.SortStableFunc(ops, func(x, y *history.Op) int { return cmp.Or(cmp.Compare(x.Call, y.Call), cmp.Compare(x.Conn, y.Conn)) })
	for _, o := range ops {
		tellFaults(o.Call)
		fmt.Fprintln(&b, o)
	}
	tellFaults(1 << 62)
	return b.String()
}
