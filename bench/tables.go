package main

import "fmt"

// dataTables are the design's table, one line a row, and everything of each load.
func (rep *report) dataTables() (all []table) {
	if len(rep.rows(getP1)) == 0 {
		return nil
	}
	t := table{
		title: "Throughput, CPU µs of the proxy per command (GET; SET in brackets), and a lone client's GET",
		head:  []string{"", "P1 a second", "P1 CPU µs", "P16 a second", "P16 CPU µs", "1 connection p50 µs"},
	}
	both := func(get, set float64, cell func(float64) string) string {
		if set == 0 {
			return cell(get)
		}
		return fmt.Sprintf("%s (%s)", cell(get), cell(set))
	}
	for _, row := range rep.targets {
		if row.name == leastLine {
			continue
		}
		get1, set1, get16, set16 := rep.median(row.name, getP1), rep.median(row.name, setP1), rep.median(row.name, getP16), rep.median(row.name, setP16)
		if get1.PerSecond == 0 {
			t.add(row.name+": not measured", "–", "–", "–", "–", "–")
			continue
		}
		t.add(row.name, both(get1.PerSecond, set1.PerSecond, count), both(get1.ProxyCPU, set1.ProxyCPU, decimal),
			both(get16.PerSecond, set16.PerSecond, count), both(get16.ProxyCPU, set16.ProxyCPU, decimal), whole(rep.median(row.name, getOne).P50))
	}
	all = append(all, t)
	for _, l := range dataLoads {
		all = append(all, rep.dataTable(l))
	}
	return all
}

func (rep *report) dataTable(l load) table {
	t := table{title: l.String(), head: []string{"", "a second", "÷ direct", "p50 µs", "p99 µs", "proxy CPU µs", "÷ twemproxy", "Redis CPU µs",
		"busy %: client", "busy %: proxy", "busy %: Redis"}}
	straight, peer := rep.median(direct, l), rep.median(twemproxy, l)
	for _, row := range rep.rows(l) {
		m := rep.median(row, l)
		t.add(row, count(m.PerSecond), decimal(ratio(m.PerSecond, straight.PerSecond)), whole(m.P50), whole(m.P99), decimal(m.ProxyCPU),
			decimal(ratio(m.ProxyCPU, peer.ProxyCPU)), decimal(m.RedisCPU),
			whole(100*m.busy(m.ClientCPU)), whole(100*m.busy(m.ProxyCPU)), whole(100*m.busy(m.RedisCPU)))
	}
	return t
}

// busy is how many CPUs are used by something that costs so many µs each time.
func (s sample) busy(micro float64) float64 { return micro * s.PerSecond / 1e6 }

func (rep *report) lockTables() (all []table) {
	for _, l := range lockLoads {
		if len(rep.rows(l)) > 0 {
			all = append(all, rep.lockTable(l))
		}
	}
	return all
}

func (rep *report) lockTable(l load) table {
	t := table{title: l.String(), head: []string{"", "a second", "changed hands", "÷ Redisson", "p50 µs", "p99 µs", "commands", "scripts", "µs in scripts",
		"CPU µs: Redis", "CPU µs: proxy", "CPU µs: client", "busy %: all"}}
	peer := rep.median(redisson, l)
	for _, row := range rep.rows(l) {
		m := rep.median(row, l)
		t.add(row, count(m.PerSecond), count(m.Changes), decimal(ratio(m.rate(l), peer.rate(l))), whole(m.P50), whole(m.P99), decimal(m.Commands), decimal(m.Scripts),
			decimal(m.InScripts), decimal(m.RedisCPU), decimal(m.ProxyCPU), decimal(m.ClientCPU),
			whole(100*m.busy(m.RedisCPU+m.ProxyCPU+m.ClientCPU)))
	}
	return t
}

// scriptTables are what each step of a lock takes in Redis.
func (rep *report) scriptTables() []table {
	if len(rep.scripts) == 0 {
		return nil
	}
	t := table{
		title: fmt.Sprintf("Time of one script in Redis, beside that of Redisson's for the same step: lower quartiles, and the quartiles of the ratio within "+
			"a round (load of the machine: %s before, %s after)", rep.load, loadOf()),
		head: []string{"step", "Redisson µs", "lockproxy µs", "ratio", "from", "to", "aim", "met"},
	}
	for _, step := range append(steps(), scriptStep{name: stepPair, most: 1.1}) {
		samples := rep.stepSamples(step.name)
		if len(samples) == 0 {
			continue // the measurement was ended
		}
		s, ratios := scriptFigures(samples)
		aim, met := "–", "–"
		if step.most > 0 {
			aim, met = fmt.Sprintf("≤ %.1f", step.most), map[bool]string{true: "yes", false: unmet}[ratios[1] <= step.most]
		}
		t.add(step.name, decimal(s.Theirs), decimal(s.Ours), decimal(ratios[1]), decimal(ratios[0]), decimal(ratios[2]), aim, met)
	}
	return []table{t}
}

// stepSamples are those of a step; of a pair, the sums of its two steps in each round.
func (rep *report) stepSamples(name string) (all []scriptSample) {
	steps := map[string][2]string{stepPair: {stepAcquire, stepRelease}, stepFloorPair: {stepFloorAcquire, stepFloorRelease}}[name]
	if steps[0] == "" {
		return rep.scripts[name]
	}
	second := rep.scripts[steps[1]]
	for i, s := range rep.scripts[steps[0]] {
		if i < len(second) {
			all = append(all, scriptSample{s.Ours + second[i].Ours, s.Theirs + second[i].Theirs})
		}
	}
	return all
}

func (rep *report) ownTables() []table {
	if len(rep.facts) == 0 {
		return nil
	}
	t := table{title: "lockproxy itself", head: []string{"", "measured", ""}}
	for _, f := range rep.facts {
		t.add(f.Name, figure(f.Value), f.Unit)
	}
	return []table{t}
}

// rate is what a load is about: of a lock that all want, how often another client has it.
func (s sample) rate(l load) float64 {
	if l.What == handoff {
		return s.Changes
	}
	return s.PerSecond
}

// unmet stands where a goal was missed.
const unmet = "NO"

// budget holds lockproxy's figures against the design's goals.
func (rep *report) budget() []table {
	t := table{title: "Goals", head: []string{"", "measured", "goal", "met", "floor", inWords}}
	for _, g := range rep.goals() {
		if g.measured > 0 {
			t.add(g.what, figure(g.measured), g.bound(), map[bool]string{true: "yes", false: unmet}[g.met()], decimal(g.floor), g.limit)
		}
	}
	if len(t.rows) == 0 {
		return nil
	}
	return []table{t}
}
