package harness

import (
	"fmt"
	"slices"
	"time"
)

// Judged is what there was to say of contention.
type Judged struct {
	sections, Told, Lost, Broke int
	overlaps                    int
	worst                       time.Duration   // of an overlap
	wakes                       []time.Duration // from UNLOCK's answer to the grant of one who waited, sorted
}

// Judge looks for two holders at a time, but for those whose loss was told before, and for lost counts. slack is by how much
// the end that a client knows of may be late on a busy machine.
func (c *Contention) Judge(slack time.Duration) (j Judged) {
	c.t.Helper()
	byKey := map[string][]Section{}
	for _, s := range c.sections {
		j.sections++
		if s.told {
			j.Told++
		}
		if s.lost {
			j.Lost++
		}
		if s.broke {
			j.Broke++
		}
		byKey[s.key] = append(byKey[s.key], s)
	}
	for key, all := range byKey {
		slices.SortFunc(all, func(a, b Section) int { return a.from.Compare(b.from) })
		c.overlapping(key, all, slack, &j)
		c.lostCounts(key, all)
	}
	slices.Sort(j.wakes)
	if c.torn > 0 {
		c.t.Errorf("%d of %d readers saw somebody write", c.torn, c.readers)
	}
	return j
}

// overlapping finds holders of one key at the same time.
func (c *Contention) overlapping(key string, all []Section, slack time.Duration, j *Judged) {
	var alone, any Section // those that end last, of the ones before
	var freed time.Time
	for _, s := range all {
		against := alone
		if !s.shared {
			against = any
		}
		if over := against.to.Sub(s.from); over > 0 && !against.to.IsZero() {
			j.overlaps++
			j.worst = max(j.worst, over)
			if over > slack {
				c.t.Errorf("%s: two holders for %v: %s and %s", key, over, DescribeSection(against), DescribeSection(s))
			}
		}
		if !freed.IsZero() && s.asked.Before(freed) && !s.shared {
			j.wakes = append(j.wakes, max(0, s.from.Sub(freed)))
		}
		freed = s.freed
		if s.shared {
			freed = time.Time{} // others may read on
		}
		if s.to.After(any.to) {
			any = s
		}
		if s.to.After(alone.to) && !s.shared {
			alone = s
		}
	}
}

func DescribeSection(s Section) string {
	const hms = "05.000000"
	return fmt.Sprintf("[proxy %d shared %v asked %s from %s to %s freed %s wrote %d told %v lost %v broke %v]", s.proxy, s.shared,
		s.asked.Format(hms), s.from.Format(hms), s.to.Format(hms), s.freed.Format(hms), s.wrote, s.told, s.lost, s.broke)
}

// lostCounts finds a value that was written twice. With one who was told of a loss the order of the two is open: it had
// looked at its connection before it wrote.
func (c *Contention) lostCounts(key string, all []Section) {
	seen := map[int64]Section{}
	sure, most := true, int64(0)
	for _, s := range all {
		sure = sure && !s.told && !s.lost
	}
	n := int64(0)
	for _, s := range all {
		if s.wrote == 0 {
			continue
		}
		n++
		most = max(most, s.wrote)
		if before, twice := seen[s.wrote]; twice && sure {
			c.t.Errorf("%s: a count was lost: %s and %s", key, DescribeSection(before), DescribeSection(s))
		}
		seen[s.wrote] = s
	}
	if sure && n != most {
		c.t.Errorf("%s: %d added, %d are there", key, n, most)
	}
}

func (j Judged) String() string {
	return fmt.Sprintf("%d sections, %d told by push, %d by LOCKLOST, %d connections broke inside; %d overlaps (longest %v); wake-ups: %s",
		j.sections, j.Told, j.Lost, j.Broke, j.overlaps, j.worst, Quantiles(j.wakes))
}

// Quantiles of sorted times.
func Quantiles(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "none"
	}
	at := func(q float64) time.Duration {
		return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d, p50 %v, p99 %v, longest %v", len(sorted), at(.5), at(.99), at(1))
}
