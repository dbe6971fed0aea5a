package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

type dataKey struct {
	target string
	load   load
}

func (k dataKey) String() string { return k.target + ": " + k.load.String() }

type lockKey struct {
	target string
	load   lockLoad
}

func (k lockKey) String() string { return k.target + ": " + k.load.String() }

// report gathers every round's samples.
type report struct {
	machine string
	data    map[dataKey][]dataSample
	locks   map[lockKey][]lockSample
	scripts map[string][]scriptSample // by the name of a step
	load    string                    // of the machine when it began
	failed  map[fmt.Stringer]error    // by dataKey or lockKey: measured no more
	order   []fmt.Stringer            // of failed
}

func newReport(ctx context.Context, s settings) *report {
	machine := fmt.Sprintf("%s, %d CPUs, %s, %s; medians of %d rounds of %g s; %s",
		cpuModel(), runtime.NumCPU(), runtime.Version(), redisVersion(ctx), s.rounds, s.seconds, time.Now().Format(time.DateOnly))
	return &report{machine: machine, data: map[dataKey][]dataSample{}, locks: map[lockKey][]lockSample{}, scripts: map[string][]scriptSample{}, load: loadOf(), failed: map[fmt.Stringer]error{}}
}

// note keeps why a load could not be measured through a target.
func (rep *report) note(key fmt.Stringer, err error) {
	if err == nil {
		return
	}
	rep.failed[key] = err
	rep.order = append(rep.order, key)
	progress("%v: %v", key, err)
}

// problems returns a line for each figure that is missing.
func (rep *report) problems(b *environment) []string {
	lines := []string{}
	for _, t := range b.targets {
		if t.problem != "" {
			lines = append(lines, t.name+": "+t.problem)
		}
	}
	for _, key := range rep.order {
		lines = append(lines, fmt.Sprintf("%v: %v", key, rep.failed[key]))
	}
	return lines
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

// dataMedian returns the median of each figure, zeros without samples.
func (rep *report) dataMedian(target string, l load) dataSample {
	s := rep.data[dataKey{target, l}]
	return dataSample{
		PerSecond: median(s, func(s dataSample) float64 { return s.PerSecond }),
		P50:       median(s, func(s dataSample) float64 { return s.P50 }),
		P99:       median(s, func(s dataSample) float64 { return s.P99 }),
		ProxyCPU:  median(s, func(s dataSample) float64 { return s.ProxyCPU }),
		RedisCPU:  median(s, func(s dataSample) float64 { return s.RedisCPU }),
	}
}

// lockMedian returns the median of each figure, zeros without samples.
func (rep *report) lockMedian(target string, l lockLoad) lockSample {
	s := rep.locks[lockKey{target, l}]
	return lockSample{
		PerSecond: median(s, func(s lockSample) float64 { return s.PerSecond }),
		P50:       median(s, func(s lockSample) float64 { return s.P50 }),
		P99:       median(s, func(s lockSample) float64 { return s.P99 }),
		ProxyCPU:  median(s, func(s lockSample) float64 { return s.ProxyCPU }),
		RedisCPU:  median(s, func(s lockSample) float64 { return s.RedisCPU }),
		Scripts:   median(s, func(s lockSample) float64 { return s.Scripts }),
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

// print writes the tables of what was measured, and why rows are missing.
func (rep *report) print(w io.Writer, b *environment) {
	fmt.Fprintln(w, rep.machine)
	if len(rep.data) > 0 {
		rep.printSummary(w, b)
		rep.printData(w, b)
	}
	if len(rep.locks) > 0 {
		rep.printPairs(w)
		rep.printHandoff(w)
	}
	if len(rep.scripts) > 0 {
		rep.printScripts(w)
	}
	rep.printBudget(w)
	for _, line := range rep.problems(b) {
		fmt.Fprintf(w, "\n%s\n", line)
	}
}

// save writes every sample, its medians, and the missing rows as JSON.
func (rep *report) save(file string, b *environment) error {
	type row struct {
		Target  string `json:"target"`
		Load    any    `json:"load"`
		Median  any    `json:"median"`
		Samples any    `json:"samples"`
	}
	out := struct {
		Machine  string   `json:"machine"`
		Data     []row    `json:"data"`
		Locks    []row    `json:"locks"`
		Scripts  []row    `json:"scripts"`
		Problems []string `json:"problems"`
	}{Machine: rep.machine, Data: []row{}, Locks: []row{}, Scripts: []row{}, Problems: rep.problems(b)}
	for _, t := range b.targets {
		for _, l := range dataLoads {
			if s := rep.data[dataKey{t.name, l}]; s != nil {
				out.Data = append(out.Data, row{t.name, l, rep.dataMedian(t.name, l), s})
			}
		}
		for _, l := range append(pairLoads, handoffLoads...) {
			if s := rep.locks[lockKey{t.name, l}]; s != nil {
				out.Locks = append(out.Locks, row{t.name, l, rep.lockMedian(t.name, l), s})
			}
		}
	}
	for _, step := range steps() {
		if s := rep.scripts[step.name]; s != nil {
			least, _, _ := rep.scriptFigures(step.name)
			out.Scripts = append(out.Scripts, row{lockproxy, step.name, least, s})
		}
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
