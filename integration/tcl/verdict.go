package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// result is one unit, straight and through lockproxy.
type result struct {
	unit   string
	whole  *skip    // the line that kept it from being run
	direct *outcome // nil with whole
	proxy  *outcome // nil with -mode direct, and when there is nothing to compare

	passed  int
	excused []miss // failures with a line in skip.txt
	missed  []miss // failures without
	healed  []*skip
	broken  []string // fail straight, and have no line
}

const notReached = "not reached"

// miss is a test that passes straight and not through lockproxy.
type miss struct {
	name  string
	times int
	why   string
	skip  *skip
}

// straight excuses tests that fail without lockproxy, too.
func (r *result) straight(skips skipList) {
	for name := range r.direct.Failed {
		if s := skips.find(r.unit, name); s != nil {
			s.used = true
		} else {
			r.broken = append(r.broken, name)
		}
	}
	slices.Sort(r.broken)
}

// compare fills in what the two ways say of each test that passes straight.
func (r *result) compare(skips skipList) {
	for name, times := range r.direct.Passed {
		got := min(r.proxy.Passed[name], times)
		r.passed += got
		s := skips.find(r.unit, name)
		if got == times {
			if s != nil && s.name != "*" {
				s.used = true // by a test that passes; healed says so
				if !s.race {
					r.healed = append(r.healed, s)
				}
			}
			continue
		}
		why, failed := r.proxy.Failed[name]
		if !failed {
			why = notReached
		}
		m := miss{name: name, times: times - got, why: why, skip: s}
		if s != nil {
			s.used = true
			r.excused = append(r.excused, m)
		} else {
			r.missed = append(r.missed, m)
		}
	}
	byName := func(a, b miss) int { return cmp.Compare(a.name, b.name) }
	slices.SortFunc(r.excused, byName)
	slices.SortFunc(r.missed, byName)
	slices.SortFunc(r.healed, func(a, b *skip) int { return cmp.Compare(a.name, b.name) })
}

// line is the unit in one line, for whoever waits.
func (r *result) line() string {
	text := fmt.Sprintf("%-28s direct %4d", r.unit, r.direct.passes())
	if n := len(r.direct.Failed); n > 0 {
		text += fmt.Sprintf(" (%d fail)", n)
	}
	last := r.direct
	if r.proxy != nil {
		last = r.proxy
		text += fmt.Sprintf("  lockproxy %4d  excused %3d  failed %3d", r.passed, count(r.excused), count(r.missed))
	}
	text += fmt.Sprintf("  %5.1f s", last.Seconds)
	if last.Aborted != "" {
		text += "  ABORTED"
	}
	return text
}

func count(misses []miss) int {
	n := 0
	for _, m := range misses {
		n += m.times
	}
	return n
}

// verdict is all results added up.
type verdict struct {
	results []*result
	direct  int // tests that pass straight
	ignored int
	passed  int
	excused int
	spread  int // of those excused, the ones whose keys do not fit one slot
	missed  int
	bad     int // what makes the run a failure
}

func judge(results []*result) *verdict {
	v := &verdict{results: results}
	for _, r := range results {
		if r.whole != nil {
			continue
		}
		v.direct += r.direct.passes()
		v.ignored += r.direct.Ignored
		v.bad += len(r.broken)
		if r.direct.Aborted != "" {
			v.bad++
		}
		if r.proxy == nil {
			continue
		}
		v.passed += r.passed
		v.excused += count(r.excused)
		for _, m := range r.excused {
			if m.skip.slots {
				v.spread += m.times
			}
		}
		v.missed += count(r.missed)
		if r.proxy.Aborted != "" {
			v.bad++
		}
	}
	v.bad += v.missed
	return v
}

// share is how many of the tests that fit one slot pass through lockproxy, rounded down.
func (v *verdict) share() string {
	fit := max(v.direct-v.spread, 1)
	return fmt.Sprintf("%d.%d %%", v.passed*100/fit, v.passed*1000/fit%10)
}

// print says what failed, what need not be skipped any more, and the sum.
func (v *verdict) print(w io.Writer) {
	for _, r := range v.results {
		if r.whole != nil {
			continue
		}
		v.printUnit(w, r)
	}
	fmt.Fprintf(w, "direct: %d pass, %d ignored", v.direct, v.ignored)
	if slices.ContainsFunc(v.results, func(r *result) bool { return r.proxy != nil }) {
		fmt.Fprintf(w, "; through lockproxy: %d pass, %d excused by the skip file, %d fail", v.passed, v.excused, v.missed)
	}
	if v.spread > 0 {
		fmt.Fprintf(w, "; %d of those excused do not fit one slot, of the %d others %s pass", v.spread, v.direct-v.spread, v.share())
	}
	fmt.Fprintln(w)
}

func (v *verdict) printUnit(w io.Writer, r *result) {
	for _, name := range r.broken {
		fmt.Fprintf(w, "FAILS DIRECTLY  %s | %s | %s\n", r.unit, name, short(r.direct.Failed[name]))
	}
	if r.direct.Aborted != "" {
		fmt.Fprintf(w, "ABORTED DIRECTLY  %s | %s\n", r.unit, short(r.direct.Aborted))
	}
	if r.proxy == nil {
		return
	}
	if r.proxy.Aborted != "" {
		fmt.Fprintf(w, "ABORTED  %s | %s\n", r.unit, short(r.proxy.Aborted))
	}
	lost := 0
	for _, m := range r.missed {
		if m.why == notReached {
			lost += m.times
			continue
		}
		fmt.Fprintf(w, "FAILED  %s | %s | %s\n", r.unit, m.name, short(m.why))
	}
	if lost > 0 {
		fmt.Fprintf(w, "FAILED  %s: %d tests were not reached\n", r.unit, lost)
	}
	for _, s := range r.healed {
		fmt.Fprintf(w, "PASSES NOW  %s | %s | take %s out\n", s.unit, s.name, s.where)
	}
}

// unused names the lines of the skip file that excuse nothing that exists. A
// line may be for another suite: its unit, or its test, is not in this one.
func (v *verdict) unused(w io.Writer, skips skipList, su *suite) {
	for _, s := range skips {
		if !s.used && !(s.norun && s.name == "*") && slices.Contains(su.units, s.unit) {
			fmt.Fprintf(w, "UNUSED  %s | %s | %s is about no test of %s\n", s.unit, s.name, s.where, su.name)
		}
	}
}

func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 300 {
		text = text[:300] + "…"
	}
	return text
}
