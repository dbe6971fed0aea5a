package lockstore

import (
	"strings"
	"testing"
)

// What looks like a lock: see Info.Held.
func TestHeld(t *testing.T) {
	t.Parallel()
	const thread = "0f8fad5b-d9cb-469f-a165-70867728950e:52"
	of := func(owner string, holds int64) []Owned { return []Owned{{Owner: owner, Holds: holds}} }
	for name, c := range map[string]struct {
		in   Info
		held bool
	}{
		"a thread's":            {Info{Kind: "plain", TTL: 1, Owners: of(thread, 7)}, true},
		"a named owner's":       {Info{Kind: "plain", TTL: 1, Owners: of("job-7", 1)}, true},
		"many readers'":         {Info{Kind: "read", TTL: 1, Unread: 40}, true},
		"nobody's":              {Info{Kind: "read", TTL: 1}, false},
		"no key":                {Info{Kind: "none", TTL: -2}, false},
		"what does not expire":  {Info{Kind: "plain", TTL: -1, Owners: of(thread, 1)}, false},
		"a counter":             {Info{Kind: "plain", TTL: 1, Owners: of("visits", 2)}, false},
		"a count below one":     {Info{Kind: "plain", TTL: 1, Owners: of(thread, 0)}, false},
		"no name of an owner":   {Info{Kind: "plain", TTL: 1, Owners: of(strings.Repeat("a", 257), 1)}, false},
		"one owner of two":      {Info{Kind: "read", TTL: 1, Owners: append(of(thread, 1), of("x", 3)...)}, false},
		"other, with an expiry": {Info{Kind: "other", TTL: 1}, false},
	} {
		if got := c.in.Held(); got != c.held {
			t.Errorf("%s: %v", name, got)
		}
	}
}
