package main

import (
	"fmt"
	"io"
)

// printSummary prints the design's table: one line a row.
func (rep *report) printSummary(w io.Writer, b *environment) {
	t := table{
		title: "Throughput, CPU µs of the proxy per command (GET; SET in brackets), and a lone client's GET",
		head:  []string{"", "P1 rps", "P1 CPU µs", "P16 rps", "P16 CPU µs", "1 connection p50 µs"},
	}
	both := func(get, set float64, cell func(float64) string) string {
		return fmt.Sprintf("%s (%s)", cell(get), cell(set))
	}
	for _, row := range b.targets {
		p1get, p1set := rep.dataMedian(row.name, load{"GET", 50, 1}), rep.dataMedian(row.name, load{"SET", 50, 1})
		p16get, p16set := rep.dataMedian(row.name, load{"GET", 50, 16}), rep.dataMedian(row.name, load{"SET", 50, 16})
		if p1get.PerSecond == 0 {
			t.add(missing(row), "–", "–", "–", "–", "–")
			continue
		}
		t.add(row.name,
			both(p1get.PerSecond, p1set.PerSecond, count), both(p1get.ProxyCPU, p1set.ProxyCPU, decimal),
			both(p16get.PerSecond, p16set.PerSecond, count), both(p16get.ProxyCPU, p16set.ProxyCPU, decimal),
			whole(rep.dataMedian(row.name, load{"GET", 1, 1}).P50))
	}
	t.print(w)
}

// missing names a row without figures; a long reason stands below the tables.
func missing(t *target) string {
	switch {
	case t.problem == "":
		return t.name
	case len(t.problem) < 20:
		return t.name + ": " + t.problem
	}
	return t.name + ": see below"
}

// printData prints everything of one load: one table each.
func (rep *report) printData(w io.Writer, b *environment) {
	for _, l := range dataLoads {
		t := table{
			title: l.String(),
			head: []string{"", "rps", "p50 µs", "p99 µs", "proxy CPU µs", "redis CPU µs",
				"rps ÷ direct", "p50 ÷ direct", "rps ÷ twemproxy", "proxy CPU ÷ twemproxy"},
		}
		straight, peer := rep.dataMedian(direct, l), rep.dataMedian(twemproxy, l)
		for _, row := range b.targets {
			m := rep.dataMedian(row.name, l)
			name := row.name
			if m.PerSecond == 0 {
				name = missing(row)
			}
			t.add(name, count(m.PerSecond), whole(m.P50), whole(m.P99), decimal(m.ProxyCPU), decimal(m.RedisCPU),
				decimal(ratio(m.PerSecond, straight.PerSecond)), decimal(ratio(m.P50, straight.P50)),
				decimal(ratio(m.PerSecond, peer.PerSecond)), decimal(ratio(m.ProxyCPU, peer.ProxyCPU)))
		}
		t.print(w)
	}
}

func (rep *report) printPairs(w io.Writer) {
	t := table{
		title: "LOCK + UNLOCK, a key each (direct: the same two scripts by EVALSHA)",
		head:  []string{"", "pairs/s", "p50 µs", "p99 µs", "proxy CPU µs", "redis CPU µs", "scripts", "÷ direct"},
	}
	for _, l := range pairLoads {
		straight := rep.lockMedian(direct, l)
		for _, name := range []string{direct, lockproxy} {
			m := rep.lockMedian(name, l)
			t.add(name+", "+plural(l.Connections, "connection"), count(m.PerSecond), whole(m.P50), whole(m.P99),
				decimal(m.ProxyCPU), decimal(m.RedisCPU), decimal(m.Scripts), decimal(ratio(m.PerSecond, straight.PerSecond)))
		}
	}
	t.print(w)
}

func (rep *report) printHandoff(w io.Writer) {
	t := table{
		title: "Hand-off: all connections LOCK one key BLOCK 60000 and UNLOCK it, through lockproxy",
		head:  []string{"waiters", "grants/s", "scripts a grant", "p50 µs", "p99 µs", "proxy CPU µs a grant", "redis CPU µs a grant"},
	}
	for _, l := range handoffLoads {
		m := rep.lockMedian(lockproxy, l)
		t.add(fmt.Sprint(l.Connections), count(m.PerSecond), decimal(m.Scripts), whole(m.P50), whole(m.P99),
			decimal(m.ProxyCPU), decimal(m.RedisCPU))
	}
	t.print(w)
}

// printScripts prints what each step of a lock takes in Redis.
func (rep *report) printScripts(w io.Writer) {
	t := table{
		title: fmt.Sprintf("Time of one script in Redis, beside that of Redisson's for the same step: lower quartiles (load of the machine: %s before, %s after)", rep.load, loadOf()),
		head:  []string{"step", "Redisson µs", "lockproxy µs", "ratio", "its quartiles", "aim", "met"},
	}
	add := func(name string, s scriptSample, quartiles string, most float64) {
		met := map[bool]string{true: "yes", false: "NO"}[s.ratio() <= most]
		t.add(name, decimal(s.Theirs), decimal(s.Ours), decimal(s.ratio()), quartiles, fmt.Sprintf("≤ %.1f", most), met)
	}
	var pair scriptSample
	for _, step := range steps() {
		if len(rep.scripts[step.name]) == 0 {
			continue // the measurement was ended
		}
		s, low, high := rep.scriptFigures(step.name)
		add(step.name, s, fmt.Sprintf("%.2f to %.2f", low, high), step.most)
		if step.pair {
			pair = scriptSample{pair.Ours + s.Ours, pair.Theirs + s.Theirs}
		}
	}
	add("plain: the pair", pair, "", 1)
	t.print(w)
}

// printBudget holds lockproxy's figures against the design's budget.
func (rep *report) printBudget(w io.Writer) {
	t := table{title: "Budget", head: []string{"", "measured", "budget", "met"}}
	judge := func(what string, figure, limit float64, atLeast bool) {
		if figure == 0 {
			return
		}
		sign, met := "≤", figure <= limit
		if atLeast {
			sign, met = "≥", figure >= limit
		}
		t.add(what, decimal(figure), fmt.Sprintf("%s %.2f", sign, limit), map[bool]string{true: "yes", false: "NO"}[met])
	}
	for _, cmd := range []string{"GET", "SET"} {
		p1, p16, one := load{cmd, 50, 1}, load{cmd, 50, 16}, load{cmd, 1, 1}
		ours := rep.dataMedian(lockproxy, p1)
		judge(cmd+" P1 throughput ÷ direct", ratio(ours.PerSecond, rep.dataMedian(direct, p1).PerSecond), 0.85, true)
		judge(cmd+" P1 CPU ÷ twemproxy", ratio(ours.ProxyCPU, rep.dataMedian(twemproxy, p1).ProxyCPU), 1.2, false)
		judge(cmd+" P16 CPU ÷ twemproxy", ratio(rep.dataMedian(lockproxy, p16).ProxyCPU, rep.dataMedian(twemproxy, p16).ProxyCPU), 0.8, false)
		judge(cmd+" 1 connection p50 ÷ byte relay", ratio(rep.dataMedian(lockproxy, one).P50, rep.dataMedian(byteRelay, one).P50), 1.2, false)
	}
	for _, l := range pairLoads {
		judge(fmt.Sprintf("%v, pairs ÷ direct", l),
			ratio(rep.lockMedian(lockproxy, l).PerSecond, rep.lockMedian(direct, l).PerSecond), 0.6, true)
	}
	for _, l := range handoffLoads {
		judge(fmt.Sprintf("%v, scripts a grant", l), rep.lockMedian(lockproxy, l).Scripts, 1.1, false)
	}
	few, many := rep.lockMedian(lockproxy, handoffLoads[0]), rep.lockMedian(lockproxy, handoffLoads[len(handoffLoads)-1])
	if flat := ratio(many.PerSecond, few.PerSecond); flat > 0 {
		t.add("hand-off, grants/s of 1000 waiters ÷ of 2", decimal(flat), "flat", "–")
	}
	if len(t.rows) > 0 {
		t.print(w)
	}
}
