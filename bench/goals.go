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
	limitCalls   = "one read, one write and one wake-up of the client's goroutine for each command or pipeline, which the least proxy in Go has, too"
	limitCopy    = "each byte is copied out of the kernel and into it"
	limitScripts = "without Redis' time, for which each script asks, nobody could tell what a lost reply has done: that call is a quarter of Redisson's script"
	limitCounts  = "the clock is read and counters are added to, for each batch of commands"
	limitMemory  = "the record of the hold, its name and owner, and its places in the tables of holds and renewals"
	limitRenewal = "10,000 renewals a second, in a hundred scripts of 100 locks"
)

// goals are all that there are figures for.
func (rep *report) goals() (all []goal) {
	vs := func(l load, other string, of func(sample) float64) float64 { return rep.over(l, lockproxy, other, of) }
	all = []goal{
		{"GET P1, CPU ÷ twemproxy", vs(getP1, twemproxy, cpuOfProxy), 0.85, 0, rep.over(getP1, leastProxy, twemproxy, cpuOfProxy), limitCalls},
		{"GET P16, CPU ÷ twemproxy", vs(getP16, twemproxy, cpuOfProxy), 0.4, 0, rep.over(getP16, leastProxy, twemproxy, cpuOfProxy), limitCalls},
		{"GET P16, CPU ÷ byte relay", vs(getP16, byteRelay, cpuOfProxy), 0.95, 0, rep.over(getP16, leastProxy, byteRelay, cpuOfProxy), limitCalls},
		{"GET of 10 KB, CPU ÷ byte relay", vs(get10K, byteRelay, cpuOfProxy), 1, 0, 1, limitCopy},
		{"GET of 1 MB, CPU ÷ byte relay", vs(get1M, byteRelay, cpuOfProxy), 1.15, 0, 1, limitCopy},
		{"GET of 1 MB, p99 ÷ byte relay", vs(get1M, byteRelay, most99), 1.5, 0, 1, "50 values of 1 MB are under way at once, and Redis, which writes them, has one thread"},
		{"GET P1, CPU before a cluster ÷ before one Redis", rep.over(getP1, clusterLockproxy, lockproxy, cpuOfProxy), 1.2, 0,
			rep.over(getP1, clusterLeast, leastProxy, cpuOfProxy), "three connections to write to and to read from, each with a third of the commands"},
		{"GET P16, CPU before a cluster ÷ before one Redis", rep.over(getP16, clusterLockproxy, lockproxy, cpuOfProxy), 1.2, 0,
			rep.over(getP16, clusterLeast, leastProxy, cpuOfProxy), "a pipeline goes to three nodes, and its replies are put in order again"},
		{"GET, 1 connection, p50 ÷ byte relay", vs(getOne, byteRelay, halfTook), 1, 0, rep.over(getOne, leastProxy, byteRelay, halfTook), limitCalls},
		{onePair.String() + ", p50 ÷ two GETs", vs(onePair, ourGets, halfTook), 1.05, 0, rep.over(onePair, ourScripts, ourGets, halfTook),
			"Redis runs two scripts, where two GETs take it next to nothing"},
		{manyPairs.String() + ", CPU ÷ two GETs", vs(manyPairs, ourGets, cpuOfProxy), 1.3, 0, rep.over(manyPairs, ourScripts, ourGets, cpuOfProxy),
			"the scripts' commands, which are made here, are nine times as long as a GET"},
		{crowdedPairs.String() + ", ÷ rueidislock", vs(crowdedPairs, rueidislock, rate), 0, 0.75, rep.over(crowdedPairs, leastScripts, rueidislock, rate),
			"a hop, and scripts that take Redis twice as long as its; it takes no hop and sends what its clients ask in one pipeline"},
		{contended.String() + ", ÷ the least hand-off", vs(contended, leastLine, changes), 0, 0.8, 1, "one round trip and one script for each hand-off"},
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
