package upstream

import (
	"strings"
	"testing"
)

// TestParseProxies: one account is for all hosts, and a comma in it, or in a socket's path, separates none.
func TestParseProxies(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"a:1":                       {"redis://a:1"},
		"a:1,b":                     {"redis://a:1", "redis://b:6379"},
		"redis://ann:p,q@a:1,b:2/3": {"redis://ann@a:1/3", "redis://ann@b:2/3"},
		"rediss://a:1,b:2":          {"rediss://a:1", "rediss://b:2"},
		"unix:///a,b":               {"unix:///a,b"},
	} {
		got, err := ParseProxies(text)
		if err != nil || len(got) != len(want) {
			t.Errorf("%s: %v, %v", text, got, err)
			continue
		}
		for i, one := range got {
			if one.String() != want[i] || strings.HasPrefix(text, "redis://ann") && one.Password != "p,q" {
				t.Errorf("%s: %s, want %s", text, one, want[i])
			}
		}
	}
	for _, text := range []string{"a:1,,b:2", "redis+sentinel://a,b/main", "redis-cluster://a,b", "http://a"} {
		if got, err := ParseProxies(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}
