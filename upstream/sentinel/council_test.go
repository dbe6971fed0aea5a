package sentinel

import (
	"errors"
	"testing"
	"time"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	silent, dead := statement{}, statement{asked: true, err: errors.New("refused")}
	says := func(addr string, epoch int64) statement {
		return statement{masterAddress: masterAddress{addr, epoch}, asked: true}
	}
	for name, c := range map[string]struct {
		views []statement
		now   masterAddress
		want  masterAddress // addr "": not enough is known
	}{
		"nobody asked yet":                      {views: []statement{silent, silent, silent}},
		"one of three, at first":                {views: []statement{says("a", 1), silent, silent}},
		"a majority, at first":                  {views: []statement{says("a", 1), silent, says("a", 1)}, want: masterAddress{"a", 1}},
		"one alive, at first":                   {views: []statement{dead, says("a", 1), dead}, want: masterAddress{"a", 1}},
		"all dead, at first":                    {views: []statement{dead, dead, dead}},
		"the newest counts, at first":           {views: []statement{says("a", 1), says("b", 2), says("a", 1)}, want: masterAddress{"b", 2}},
		"most votes, at first":                  {views: []statement{says("a", 0), says("b", 0), says("b", 0)}, want: masterAddress{"b", 0}},
		"all dead later":                        {views: []statement{dead, dead, dead}, now: masterAddress{"a", 1}},
		"one says newer":                        {views: []statement{says("a", 1), says("b", 2), dead}, now: masterAddress{"a", 1}, want: masterAddress{"b", 2}},
		"one alone with an old view":            {views: []statement{says("a", 1), dead, dead}, now: masterAddress{"b", 2}, want: masterAddress{"b", 2}},
		"one with an old view among others":     {views: []statement{says("a", 1), says("b", 2), says("b", 2)}, now: masterAddress{"b", 2}, want: masterAddress{"b", 2}},
		"one differs within the epoch":          {views: []statement{says("b", 1), dead, dead}, now: masterAddress{"a", 1}, want: masterAddress{"a", 1}},
		"half of them differ within the epoch":  {views: []statement{says("b", 1), says("a", 1)}, now: masterAddress{"a", 1}, want: masterAddress{"a", 1}},
		"a majority differs within the epoch":   {views: []statement{says("b", 1), says("b", 1), says("a", 1)}, now: masterAddress{"a", 1}, want: masterAddress{"b", 1}},
		"a majority was set up anew":            {views: []statement{says("c", 0), says("c", 0), dead}, now: masterAddress{"a", 7}, want: masterAddress{"c", 0}},
		"the same master in a newer epoch":      {views: []statement{says("a", 3), dead, dead}, now: masterAddress{"a", 1}, want: masterAddress{"a", 3}},
		"a tie within a newer epoch: none left": {views: []statement{says("b", 2), says("a", 2), dead}, now: masterAddress{"a", 1}, want: masterAddress{"a", 2}},
	} {
		to, ok := choose(c.views, c.now)
		if ok != (c.want.addr != "") || to != c.want {
			t.Errorf("%s: got %v, %v; want %v", name, to, ok, c.want)
		}
	}
}

// TestHear: what the Sentinels say in turn, and who is followed then. Those that were set up anew begin with a lower epoch, which counts when it
// stays so.
func TestHear(t *testing.T) {
	t.Parallel()
	type said struct {
		after time.Duration // since the one before
		addr  string
		epoch int64
		now   string
	}
	for name, all := range map[string][]said{
		"a newer epoch counts at once": {{0, "a", 7, "a"}, {0, "b", 8, "b"}},
		"a lower epoch counts later":   {{0, "a", 7, "a"}, {0, "b", 0, "a"}, {resetTimeout / 2, "b", 0, "a"}, {resetTimeout / 2, "b", 0, "b"}},
		"a lower epoch that came back": {{0, "a", 7, "a"}, {0, "b", 0, "a"}, {resetTimeout / 2, "a", 7, "a"}, {resetTimeout, "b", 0, "a"}},
		"the same in a lower epoch":    {{0, "a", 7, "a"}, {0, "a", 0, "a"}, {resetTimeout, "a", 0, "a"}},
	} {
		c, at, moves, want := council{statements: make([]statement, 3)}, time.Unix(1e9, 0), 0, 0
		for i, s := range all {
			at = at.Add(s.after)
			if i == 0 || s.now != all[i-1].now {
				want++
			}
			for k := range c.statements {
				if c.hear(k, statement{masterAddress: masterAddress{s.addr, s.epoch}}, at) {
					moves++
				}
			}
			if c.now.addr != s.now || moves != want {
				t.Errorf("%s: after %v the master is %q, after %d moves", name, s, c.now.addr, moves)
			}
		}
	}
}

// TestUnknown: why no master is known is told when all have been asked, in the words of a Sentinel that says something.
func TestUnknown(t *testing.T) {
	t.Parallel()
	away := errors.New("connection refused")
	c := council{statements: make([]statement, 3)}
	for i, want := range []error{nil, nil, errNoSuchMaster} {
		c.hear(i, statement{err: []error{away, errNoSuchMaster, away}[i]}, time.Now())
		if why := c.unknown(); why != want {
			t.Errorf("after %d answers: %v", i+1, why)
		}
	}
	c.hear(0, statement{masterAddress: masterAddress{"a", 1}}, time.Now())
	if why := c.unknown(); why != nil {
		t.Errorf("it is known, and %v", why)
	}
}
