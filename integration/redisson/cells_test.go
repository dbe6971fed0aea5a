package redisson

// places are the kinds of upstream, in the document's order, with what its titles say of each.
var places = []struct{ name, title string }{{alone, ""}, {clustered, " on a cluster"}, {sentinels, " with Sentinels"}}

// tablesOf is the part of the matrix that is tried in one place.
func tablesOf(where string) []table {
	title := ""
	for _, p := range places {
		if p.name == where {
			title = p.title
		}
	}
	columns, around := []string{"RESP2", "RESP3", replicated, inCluster}, ""
	switch where {
	case clustered:
		columns, around = []string{"RESP2", "RESP3", inCluster}, clusterText
	case sentinels:
		columns, around = []string{"RESP2"}, sentinelText
	}
	return []table{
		{
			title:   "Side by side" + title,
			text:    around,
			columns: []string{theyFirst, weFirst, bothJava},
			verbs:   func(column string) bool { return column != bothJava },
			cells:   in(where, pairCells()),
		},
		{
			title:   "All together" + title,
			columns: []string{""},
			verbs:   func(string) bool { return true },
			cells:   in(where, togetherCells()),
		},
		{
			title:   "Redisson with lockproxy as its server" + title,
			columns: columns,
			verbs:   func(string) bool { return false },
			cells:   in(where, throughCells()),
		},
	}
}

// in are the cells that are tried in a place.
func in(where string, cells []cell) (all []cell) {
	for _, c := range cells {
		if !(c.slow && where == sentinels) && (c.where == "" || c.where == where) {
			all = append(all, c)
		}
	}
	return all
}

func pairCells() (cells []cell) {
	for _, kind := range []string{"plain", "fenced", "fair", "read", "write", "multi"} {
		cells = append(cells,
			cell{kind: kind, what: "an unlock wakes the waiter", run: wakes},
			cell{kind: kind, what: "excludes who tries, and who waits for a time", run: excludes},
			cell{kind: kind, what: "kept by the watchdog for more than three leases", run: watched, slow: kind != "plain"},
		)
		if kind == "multi" {
			cells = append(cells, cell{kind: kind, what: "the holder's client hangs up: the waiter wakes", run: hangsUp, only: []string{weFirst}})
			continue
		}
		cells = append(cells,
			cell{kind: kind, what: "locked three times, free after three unlocks", run: reenters},
			cell{kind: kind, what: "forced: the waiter wakes, the holder is told", run: forced},
			cell{kind: kind, what: "a lease that ends lets the waiter in; the late unlock is refused", run: expires, slow: true},
			cell{kind: kind, what: "a stranger's unlock is refused", run: strangers},
			cell{kind: kind, what: "the holder's client hangs up: the waiter wakes", run: hangsUp, only: []string{weFirst}},
		)
	}
	const limit = "limit 1"
	cells = append(cells,
		cell{kind: limit, what: "an unlock wakes the waiter", run: wakes},
		cell{kind: limit, what: "excludes who tries, and who waits for a time", run: excludes},
		cell{kind: limit, what: "a lease that ends lets the waiter in; the late unlock is refused", run: expires, slow: true},
		cell{kind: limit, what: "a stranger's unlock is refused", run: strangers},
		cell{kind: limit, what: "the holder's client hangs up: the waiter wakes", run: hangsUp, only: []string{weFirst}},
		cell{kind: limit, what: "eight waiters of both sides are served", run: mixed},
	)
	for _, kind := range []string{"plain", "fenced", "write"} {
		cells = append(cells, cell{kind: kind, what: "eight waiters of both sides are served", run: mixed})
	}
	for _, kind := range []string{"plain", "fair", "write"} {
		cells = append(cells, cell{kind: kind, what: "the lock's slot moves, and moves back: the waiter still wakes", run: moves, where: clustered, only: []string{theyFirst}})
	}
	return append(cells,
		cell{kind: "plain", what: "names with braces, blanks and all of Unicode", run: names},
		cell{kind: "fenced", what: "the tokens of both sides are one rising sequence", run: tokens},
		cell{kind: "fair", what: "eight waiters of both sides are served in the order they came", run: mixed},
		cell{kind: "fair", what: "who gives up or hangs up is out of the queue, the next one gets it by a message", run: givesUp, slow: true},
		cell{kind: "read", what: "readers of both sides share; the last one out wakes the writer", run: shares},
		cell{kind: "read", what: "a writer's unlock wakes all readers", run: letsReadersIn},
		cell{kind: "read", what: "one reader goes, the other's lease ends: the writer gets in", run: lastLease, slow: true},
		cell{kind: "write", what: "a downgrade lets readers in, and no writers", run: downgrades},
		cell{kind: "write", what: "a downgrade wakes waiting readers", run: downgradeWakes, only: []string{weFirst}},
		cell{kind: "write", what: "no upgrade", run: noUpgrade},
		cell{kind: "multi", what: "all or none of the members", run: allOrNone},
	)
}
