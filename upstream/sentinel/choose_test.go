package sentinel

import (
	"errors"
	"testing"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	silent, dead := view{}, view{asked: true, err: errors.New("refused")}
	says := func(addr string, epoch int64) view { return view{place: place{addr, epoch}, asked: true} }
	for name, c := range map[string]struct {
		views []view
		now   place
		want  place // addr "": not enough is known
	}{
		"nobody asked yet":                      {views: []view{silent, silent, silent}},
		"one of three, at first":                {views: []view{says("a", 1), silent, silent}},
		"a majority, at first":                  {views: []view{says("a", 1), silent, says("a", 1)}, want: place{"a", 1}},
		"one alive, at first":                   {views: []view{dead, says("a", 1), dead}, want: place{"a", 1}},
		"all dead, at first":                    {views: []view{dead, dead, dead}},
		"the newest counts, at first":           {views: []view{says("a", 1), says("b", 2), says("a", 1)}, want: place{"b", 2}},
		"most votes, at first":                  {views: []view{says("a", 0), says("b", 0), says("b", 0)}, want: place{"b", 0}},
		"all dead later":                        {views: []view{dead, dead, dead}, now: place{"a", 1}},
		"one says newer":                        {views: []view{says("a", 1), says("b", 2), dead}, now: place{"a", 1}, want: place{"b", 2}},
		"one alone with an old view":            {views: []view{says("a", 1), dead, dead}, now: place{"b", 2}, want: place{"b", 2}},
		"one with an old view among others":     {views: []view{says("a", 1), says("b", 2), says("b", 2)}, now: place{"b", 2}, want: place{"b", 2}},
		"one differs within the epoch":          {views: []view{says("b", 1), dead, dead}, now: place{"a", 1}, want: place{"a", 1}},
		"half of them differ within the epoch":  {views: []view{says("b", 1), says("a", 1)}, now: place{"a", 1}, want: place{"a", 1}},
		"a majority differs within the epoch":   {views: []view{says("b", 1), says("b", 1), says("a", 1)}, now: place{"a", 1}, want: place{"b", 1}},
		"a majority was set up anew":            {views: []view{says("c", 0), says("c", 0), dead}, now: place{"a", 7}, want: place{"c", 0}},
		"the same master in a newer epoch":      {views: []view{says("a", 3), dead, dead}, now: place{"a", 1}, want: place{"a", 3}},
		"a tie within a newer epoch: none left": {views: []view{says("b", 2), says("a", 2), dead}, now: place{"a", 1}, want: place{"a", 2}},
	} {
		to, ok := choose(c.views, c.now)
		if ok != (c.want.addr != "") || to != c.want {
			t.Errorf("%s: got %v, %v; want %v", name, to, ok, c.want)
		}
	}
}
