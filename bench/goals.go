package main

// goal is what the design asks for, beside what a program reaches that does the least that any could do for the same guarantee.
type goal struct {
	what        string
	measured    float64
	most, least float64 // one of them is 0
	floor       float64 // 0: none runs
	limit       string  // what bounds it
}

func (g goal) met() bool { return g.measured >= g.least && (g.most == 0 || g.measured <= g.most) }

func (g goal) bound() string {
	if g.most > 0 {
		return "≤ " + figure(g.most)
	}
	return "≥ " + figure(g.least)
}

// over is one row's figure as a multiple of another's.
func (rep *report) over(l load, row, other string, of func(sample) float64) float64 {
	return ratio(of(rep.median(row, l)), of(rep.median(other, l)))
}

func cpuOfProxy(s sample) float64 { return s.ProxyCPU }
func halfTook(s sample) float64   { return s.P50 }
func most99(s sample) float64     { return s.P99 }
func rate(s sample) float64       { return s.PerSecond }
func changes(s sample) float64    { return s.Changes }

var (
	onePair, manyPairs, crowdedPairs = lockLoad(pair, 1), lockLoad(pair, pairsClients), lockLoad(pair, 128)
	contended                        = lockLoad(handoff, handoffGoal)
)

const (
	limitCalls = "one read, one write and one wake-up of the client's goroutine for each command or pipeline, " +
		"which the least proxy in Go has, too"
	limitCopy    = "each byte is copied out of the kernel and into it"
	limitTurns   = "50 values of 1 MB are under way at once, and Redis, which writes them, has one thread"
	limitNodes   = "three connections to write to and to read from, each with a third of the commands"
	limitOrder   = "a pipeline goes to three nodes, and its replies are put in order again"
	limitTwo     = "Redis runs two scripts, where two GETs take it next to nothing"
	limitLength  = "the scripts' commands, which are made here, are nine times as long as a GET"
	limitHop     = "a hop, and scripts that take Redis twice as long; rueidislock sends what its clients ask in one pipeline"
	limitTrip    = "one round trip and one script for each hand-off"
	limitScripts = "without Redis' time, for which each script asks, nobody could tell what a lost reply has done: " +
		"that call is a quarter of Redisson's script"
	limitCounts  = "the clock is read and counters are added to, for each batch of commands"
	limitMemory  = "the record of the hold, its name and owner, and its places in the tables of holds and renewals"
	limitRenewal = "10,000 renewals a second, in a hundred scripts of 100 locks"
)

// goals are all that there are figures for.
func (rep *report) goals() (all []goal) {
	for _, g := range []struct {
		what              string
		l                 load
		of                func(sample) float64
		row, other        string
		floor, floorOther string
		most, least       float64
		limit             string
	}{
		{"GET P1, CPU ÷ twemproxy", getP1, cpuOfProxy, lockproxy, twemproxy, leastProxy, twemproxy, 0.85, 0, limitCalls},
		{"GET P16, CPU ÷ twemproxy", getP16, cpuOfProxy, lockproxy, twemproxy, leastProxy, twemproxy, 0.4, 0, limitCalls},
		{"GET P16, CPU ÷ byte relay", getP16, cpuOfProxy, lockproxy, byteRelay, leastProxy, byteRelay, 0.95, 0, limitCalls},
		{"GET of 10 KB, CPU ÷ byte relay", get10K, cpuOfProxy, lockproxy, byteRelay, "", "", 1, 0, limitCopy},
		{"GET of 16 B or 100 KB, CPU ÷ byte relay", getMixed, cpuOfProxy, lockproxy, byteRelay, "", "", 1, 0, limitCopy},
		{"GET of 1 MB, CPU ÷ byte relay", get1M, cpuOfProxy, lockproxy, byteRelay, byteRelay, byteRelay, 1.15, 0, limitCopy},
		{"GET of 1 MB, p99 ÷ byte relay", get1M, most99, lockproxy, byteRelay, byteRelay, byteRelay, 1.5, 0, limitTurns},
		{"GET P1, CPU before a cluster ÷ before one Redis", getP1, cpuOfProxy,
			clusterLockproxy, lockproxy, clusterLeast, leastProxy, 1.2, 0, limitNodes},
		{"GET P16, CPU before a cluster ÷ before one Redis", getP16, cpuOfProxy,
			clusterLockproxy, lockproxy, clusterLeast, leastProxy, 1.2, 0, limitOrder},
		{"GET, 1 connection, p50 ÷ byte relay", getOne, halfTook, lockproxy, byteRelay, leastProxy, byteRelay, 1, 0, limitCalls},
		{onePair.String() + ", p50 ÷ two GETs", onePair, halfTook, lockproxy, ourGets, ourScripts, ourGets, 1.05, 0, limitTwo},
		{manyPairs.String() + ", CPU ÷ two GETs", manyPairs, cpuOfProxy, lockproxy, ourGets, ourScripts, ourGets, 1.3, 0, limitLength},
		{crowdedPairs.String() + ", ÷ rueidislock", crowdedPairs, rate, lockproxy, rueidislock, leastScripts, rueidislock, 0, 0.75, limitHop},
		{contended.String() + ", ÷ the least hand-off", contended, changes, lockproxy, leastLine, leastLine, leastLine, 0, 0.8, limitTrip},
	} {
		all = append(all, goal{g.what, rep.over(g.l, g.row, g.other, g.of), g.most, g.least, rep.over(g.l, g.floor, g.floorOther, g.of), g.limit})
	}
	var watched float64
	for _, step := range []struct {
		name, floor string
		most        float64
	}{
		{stepPair, stepFloorPair, 1.1}, {stepAcquire, stepFloorAcquire, 1.2}, {stepNamed, stepFloorAcquire, 1.2},
		{stepRenew, stepFloorRenew, 1.2}, {stepRenewMany, stepFloorMany, 1.2},
	} {
		_, ratios := scriptFigures(rep.stepSamples(step.name))
		least, floor := scriptFigures(rep.stepSamples(step.floor))
		watched = least.Ours / 100 // % of a CPU: that script runs a hundred times a second; the last step's stays
		all = append(all, goal{"script, " + step.name + ", ÷ Redisson's", ratios[1], step.most, 0, floor[1], limitScripts})
	}
	for _, f := range rep.facts {
		if f.Most+f.Least > 0 {
			floor := map[string]float64{watchRedis: watched}[f.Name]
			all = append(all, goal{f.Name + ", " + f.Unit, f.Value, f.Most, f.Least, floor, f.Limit})
		}
	}
	return all
}
