package glob

import (
	"strings"
	"testing"
	"time"
)

func TestPatternIsRedis(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*", "abc", true}, {"a*d", "abc", false},
		{"*b*", "abc", true}, {"a?c", "abc", true}, {"a?", "a", false}, {"h[ae]llo", "hello", true}, {"h[ae]llo", "hillo", false},
		{"h[^e]llo", "hello", false}, {"h[^e]llo", "hallo", true}, {"h[a-c]llo", "hbllo", true}, {"h[c-a]llo", "hbllo", true},
		{"h[a-c]llo", "hdllo", false}, {"a\\*c", "a*c", true}, {"a\\*c", "abc", false}, {"[\\]]", "]", true}, {"[abc", "b", true},
		{"app:*:lock", "app:7:lock", true}, {"**a", "bba", true},
	} {
		if got := New(c.pattern).Matches(c.name); got != c.want {
			t.Errorf("%q, %q: %v", c.pattern, c.name, got)
		}
	}
	began := time.Now()
	New(strings.Repeat("*a", MaxLength/2)).Matches(strings.Repeat("a", 100_000) + "b")
	New("*[" + strings.Repeat("b", MaxLength-4) + "]z").Matches(strings.Repeat("b", 100_000))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a hostile pattern took %v", took)
	}
}
