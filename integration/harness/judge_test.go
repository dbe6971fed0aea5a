package harness

import (
	"testing"
	"time"
)

// complaints is a test that only counts what is found wrong.
type complaints struct {
	testing.TB
	n int
}

func (c *complaints) Errorf(string, ...any) { c.n++ }
func (c *complaints) Helper()               {}

// TestContentionJudge: two holders at a time and lost counts are found, and nothing else is taken for them.
func TestContentionJudge(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	one := func(from, to int, wrote int64, shared bool) Section {
		return Section{key: "k", asked: at(0), from: at(from), to: at(to), freed: at(to), wrote: wrote, shared: shared}
	}
	told := one(0, 5, 0, false)
	told.told = true
	for name, c := range map[string]struct {
		sections []Section
		wrong    bool
	}{
		"one after the other":        {[]Section{one(0, 5, 1, false), one(5, 9, 2, false), one(9, 12, 0, true)}, false},
		"two readers":                {[]Section{one(0, 5, 0, true), one(2, 9, 0, true)}, false},
		"two holders":                {[]Section{one(0, 5, 1, false), one(4, 9, 2, false)}, true},
		"a reader and a writer":      {[]Section{one(0, 5, 0, true), one(4, 9, 1, false)}, true},
		"a writer and a reader":      {[]Section{one(0, 5, 1, false), one(6, 7, 2, false), one(6, 9, 0, true)}, true},
		"long before":                {[]Section{one(0, 50, 1, false), one(51, 52, 2, false), one(40, 41, 0, true)}, true},
		"a count is lost":            {[]Section{one(0, 5, 1, false), one(6, 9, 1, false)}, true},
		"one was told before":        {[]Section{told, one(5, 9, 1, false)}, false},
		"told only after the others": {[]Section{told, one(3, 9, 1, false)}, true},
	} {
		found := &complaints{TB: t}
		c2 := &Contention{t: found, sections: c.sections}
		c2.Judge(0)
		if (found.n > 0) != c.wrong {
			t.Errorf("%s: %d complaints", name, found.n)
		}
	}
}
