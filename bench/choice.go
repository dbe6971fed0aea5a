package main

import "slices"

// What of all tables is on the page.

// untitled is a table whose heading the page has.
func untitled(head ...string) table { return table{head: head} }

// of is a figure of one row; "–" if there is none.
func (t table) of(row, column string) string {
	at := slices.Index(t.head, column)
	for _, cells := range t.rows {
		if at >= 0 && cells[0] == row {
			return cells[at]
		}
	}
	return "–"
}

func named(tables []table, title string) table {
	for _, t := range tables {
		if t.title == title {
			return t
		}
	}
	return table{}
}

// gets are the tables of GET: what its loads are called, in one row for each.
func (f figures) gets() (all []table) {
	for _, l := range dataLoads {
		if t := named(f.commands, l.String()); l.What == "GET" && len(t.rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// cost is lockproxy beside no proxy.
func (f figures) cost() table {
	t := untitled("", "a second, direct", "a second", "p50 µs, direct", "p50 µs", "p99 µs, direct", "p99 µs", "CPU µs")
	for _, l := range f.gets() {
		cells := []string{l.title}
		for _, column := range []string{"a second", "p50 µs", "p99 µs"} {
			cells = append(cells, l.of(direct, column), l.of(lockproxy, column))
		}
		t.add(append(cells, l.of(lockproxy, "proxy CPU µs"))...)
	}
	return t
}

// proxies are what was measured of all proxies.
func (f figures) proxies() (all []table) {
	if len(f.commands) == 0 {
		return nil
	}
	sum := table{title: "**" + f.commands[0].title + "**", head: f.commands[0].head}
	for _, row := range f.commands[0].rows {
		if row[1] != "–" { // what was not measured is named at the end
			sum.add(row...)
		}
	}
	return []table{sum}
}

// libraries are the contestants, uncontended and contended.
func (f figures) libraries() table {
	one, many := named(f.locks, lockLoad(pair, 1).String()), named(f.locks, lockLoad(pair, pairsClients).String())
	all := named(f.locks, lockLoad(handoff, handoffGoal).String())
	t := untitled("", "1 client: p50 µs", "50 clients: a second", "CPU µs of Redis", "commands in Redis",
		"128 want one: changed hands a second", "p99 µs")
	for _, c := range contestants {
		cells := []string{
			c.name, one.of(c.name, "p50 µs"),
			many.of(c.name, "a second"), many.of(c.name, "CPU µs: Redis"), many.of(c.name, "commands"),
			all.of(c.name, "changed hands"), all.of(c.name, "p99 µs"),
		}
		if slices.ContainsFunc(cells[1:], func(cell string) bool { return cell != "–" }) {
			t.add(cells...)
		}
	}
	return t
}

// itself are the figures of lockproxy alone; the text above has their title.
func (f figures) itself() (all []table) {
	for _, t := range f.own {
		t.title = ""
		all = append(all, t)
	}
	return all
}

// onPage are the steps that the page has; the list has all.
var onPage = []string{
	"plain: acquire", "plain: release, the last", "plain: the pair", "plain: renew 1", "plain: renew 100",
	"OWNER: acquire", "OWNER: release", "OWNER: RENEW", "fair: acquire, nobody waits", "fair: release, nobody waits",
	"read: acquire", "read: release, the last",
}

func (f figures) steps() (all []table) {
	for _, t := range f.scripts {
		short := table{title: "**" + t.title + "**", head: []string{t.head[0], "Redisson µs", "lockproxy µs", "ratio"}}
		for _, step := range onPage {
			if ratio := t.of(step, "ratio"); ratio != "–" {
				short.add(step, t.of(step, "Redisson µs"), t.of(step, "lockproxy µs"), ratio)
			}
		}
		all = append(all, short)
	}
	return all
}

// unmet are the goals that were missed.
func (f figures) unmet() (all []table) {
	for _, t := range f.goals {
		missed := untitled("", "measured", "goal", "floor")
		for _, row := range t.rows {
			if row[3] == unmet {
				missed.add(row[0], row[1], row[2], row[4])
			}
		}
		all = append(all, missed)
	}
	return all
}
