package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// key is one figure of a table.
type key struct {
	row  string
	load load
}

func (k key) String() string { return k.row + ": " + k.load.String() }

// fact is a figure of lockproxy alone. Most and Least are what it may be; 0 is no bound.
type fact struct {
	Name  string
	Value float64
	Unit  string
	Most  float64
	Least float64
	Limit string // what bounds it
}

// report gathers every round's samples.
type report struct {
	machine  string
	versions []string
	samples  map[key][]sample
	scripts  map[string][]scriptSample // by the name of a step
	load     string                    // of the machine when it began
	facts    []fact
	failed   map[key]error // measured no more
	problems []string      // a line for each figure that is missing
	targets  []*target
	built    map[string]*rival // nil: not yet
}

func newReport(s settings) *report {
	machine := fmt.Sprintf("%s, %d CPUs, %s; medians of %s of %g s; %s; load average when it began: %s",
		cpuModel(), runtime.NumCPU(), runtime.Version(), plural(s.rounds, "round"), s.seconds, time.Now().Format(time.DateOnly), loadOf())
	return &report{machine: machine, samples: map[key][]sample{}, scripts: map[string][]scriptSample{}, load: loadOf(), failed: map[key]error{}}
}

// add takes a sample, or notes why there is none.
func (rep *report) add(k key, take func() (sample, error)) {
	s, err := take()
	if err != nil {
		rep.failed[k] = err
		rep.missing(k.String(), err)
		return
	}
	rep.samples[k] = append(rep.samples[k], s)
}

// missing says, at once and in the report, what there is no figure of.
func (rep *report) missing(what string, err error) {
	line := strings.Join(strings.Fields(fmt.Sprintf("%s: %v", what, err)), " ")
	rep.problems = append(rep.problems, line)
	progress("*** NOT MEASURED: %s ***", line)
}

func (rep *report) fact(f fact) { rep.facts = append(rep.facts, f) }

// rivals are the libraries' programs, which are built once.
func (rep *report) rivals(ctx context.Context) map[string]*rival {
	if rep.built == nil {
		rep.built = buildRivals(ctx, rep)
	}
	return rep.built
}

// versionsOfRivals notes the versions of the libraries.
func (rep *report) versionsOfRivals() {
	for _, c := range contestants {
		r := rep.built[c.of]
		if r == nil {
			continue
		}
		if v := r.versions[c.name]; v != "" && c.through == direct && c.name != redissonFair {
			rep.versions = append(rep.versions, c.name+" "+strings.TrimPrefix(v, "v"))
		}
	}
}

// finish takes over what the environment knows.
func (rep *report) finish(b *environment) {
	rep.targets = b.targets
	rep.versionsOfRivals()
	rep.versions = append(append([]string{"lockproxy " + ownVersion()}, b.versions...), rep.versions...)
	for _, t := range b.targets {
		if t.problem != "" {
			rep.problems = append(rep.problems, t.name+": "+t.problem)
		}
	}
}

// note is the caption of a chart, in short.
func (rep *report) note() string {
	return fmt.Sprintf("%s, %d CPUs · %s · %s", cpuModel(), runtime.NumCPU(), strings.Join(rep.versions[:2], ", "), time.Now().Format(time.DateOnly))
}

// others is how many CPUs were used by others than those that were measured.
func (rep *report) others() float64 {
	var all []sample
	for _, s := range rep.samples {
		all = append(all, s...)
	}
	return median(all, func(s sample) float64 { return s.Others })
}

// caption says where and with what all of it was measured, and how quiet it was there.
func (rep *report) caption() string {
	return fmt.Sprintf("%s; other processes took %.2f CPUs meanwhile; %s", rep.machine, rep.others(), strings.Join(rep.versions, ", "))
}

func ownVersion() string {
	revision, changed := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(len(s.Value), 10)]
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = ", changed"
			}
		}
	}
	if revision == "" { // go run leaves it out
		out, _ := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=10").Output() // only a caption
		revision = strings.TrimSpace(string(out))
	}
	return cmp.Or(revision, "of an unknown commit") + changed
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // only a caption
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func redisVersion(ctx context.Context) string {
	out, _ := exec.CommandContext(ctx, "redis-server", "--version").Output() // only a caption
	for field := range strings.FieldsSeq(string(out)) {
		if v, ok := strings.CutPrefix(field, "v="); ok {
			return "Redis " + v
		}
	}
	return "Redis"
}

// median returns the median of each figure, zeros without samples.
func (rep *report) median(row string, l load) sample {
	s := rep.samples[key{row, l}]
	return sample{
		PerSecond: median(s, func(s sample) float64 { return s.PerSecond }),
		Changes:   median(s, func(s sample) float64 { return s.Changes }),
		P50:       median(s, func(s sample) float64 { return s.P50 }),
		P99:       median(s, func(s sample) float64 { return s.P99 }),
		ProxyCPU:  median(s, func(s sample) float64 { return s.ProxyCPU }),
		RedisCPU:  median(s, func(s sample) float64 { return s.RedisCPU }),
		ClientCPU: median(s, func(s sample) float64 { return s.ClientCPU }),
		Commands:  median(s, func(s sample) float64 { return s.Commands }),
		Scripts:   median(s, func(s sample) float64 { return s.Scripts }),
		InScripts: median(s, func(s sample) float64 { return s.InScripts }),
		Longest:   median(s, func(s sample) float64 { return s.Longest }),
		Least:     median(s, func(s sample) float64 { return s.Least }),
		Most:      median(s, func(s sample) float64 { return s.Most }),
		Others:    median(s, func(s sample) float64 { return s.Others }),
	}
}

func median[S any](samples []S, figure func(S) float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = figure(s)
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// rows are the rows that have figures of a load, in the order of the tables.
func (rep *report) rows(l load) (names []string) {
	var all []string
	if l.What == pair || l.What == handoff || l.What == herd {
		for _, c := range contestants {
			all = append(all, c.name)
		}
	} else {
		for _, t := range rep.targets {
			all = append(all, t.name)
		}
	}
	for _, name := range all {
		if len(rep.samples[key{name, l}]) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// print writes the tables of what was measured, and what is missing.
func (rep *report) print(w io.Writer) {
	fmt.Fprintln(w, rep.caption())
	for _, t := range slices.Concat(rep.dataTables(), rep.lockTables(), rep.herdTables(), rep.scriptTables(), rep.ownTables(), rep.budget()) {
		t.print(w)
	}
	for _, line := range rep.problems {
		fmt.Fprintf(w, "\n*** NOT MEASURED: %s ***\n", line)
	}
}
