package runlock

import (
	"slices"
	"strings"
	"testing"
)

// TestParse: what the command line says becomes one command that takes the locks, or is refused.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, take, fault string }{
		{"--lock a -- true", "LOCK a", ""},
		{"--lock b --lock a --lock b -- true", "MULTILOCK 2 b a", ""},
		{"--lock a --fair -- true", "FAIRLOCK a", ""},
		{"--lock a --shared -- true", "RLOCK a", ""},
		{"--lock a --exclusive -- true", "WLOCK a", ""},
		{"--lock a --limit 5 -- true", "LOCK a LIMIT 5", ""},
		{"--lock a --limit 0 -- true", "", "not a number above 0"},
		{"--lock a --limit 5 --fair -- true", "", "one of them at most"},
		{"--lock a --lock b --limit 5 -- true", "", "with one --lock only"},
		{"--lock a --shared --fair -- true", "", "one of them at most"},
		{"--lock a --lock b --shared -- true", "", "with one --lock only"},
		{"--lock a --at-least -1s -- true", "", "--at-least: -1s is below 0"},
		{"--lock a --wait -1s -- true", "", "--wait: -1s is below 0"},
		{"--lock a --address redis+sentinel://h/m -- true", "", "--address: not host:port"},
		{"-- true", "", "--lock: no name"},
	} {
		o, err := parse(strings.Fields(c.line))
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v, want %q", c.line, err, c.fault)
			}
		case err != nil || !slices.Equal(o.takeVerb(), strings.Fields(c.take)):
			t.Errorf("%s: %v, %v", c.line, o.takeVerb(), err)
		}
	}
}
