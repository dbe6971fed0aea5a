package upstream

import "testing"

// TestParseProxy: a comma in an account, or in a socket's path, separates no hosts, of which there is one.
func TestParseProxy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a:1": "redis://a:1", "b": "redis://b:6380", "::1": "redis://[::1]:6380", "redis://b": "redis://b:6379", "redis://ann:p,q@a:1/3": "redis://ann@a:1/3", "rediss://a:1": "rediss://a:1", "unix:///a,b": "unix:///a,b",
	} {
		got, err := ParseProxy(text)
		if err != nil || got.String() != want || got.User == "ann" && got.Password != "p,q" {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"a:1,b:2", "redis+sentinel://a,b/main", "redis-cluster://a", "http://a"} {
		if got, err := ParseProxy(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}
