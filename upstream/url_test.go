package upstream

import (
	"fmt"
	"strings"
	"testing"
)

func TestURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]struct {
		printed               string
		embedded, single, tls bool
	}{
		"":                                  {"embedded", true, false, false},
		"redis://ann:geheim@h/3":            {"redis://h:6379/3", false, true, false},
		"rediss://ann:geheim@h":             {"rediss://h:6379", false, true, true},
		"unix://ann:geheim@/run/redis.sock": {"unix:///run/redis.sock", false, true, false},
		"rediss+sentinel://ann:geheim@h,g:1/main?sentinel-password=geheim": {"rediss+sentinel://h:26379,g:1/main", false, false, true},
		"redis-cluster://ann:geheim@h,g:1":                                 {"redis-cluster://h:6379,g:1", false, false, false},
		"rediss-cluster://ann:geheim@h":                                    {"rediss-cluster://h:6379", false, false, true},
	} {
		u, err := ParseURL(raw)
		if err != nil || u.Embedded() != want.embedded || u.Single() != want.single || u.TLS() != want.tls {
			t.Errorf("%s: %v, %v, embedded %v, single %v, TLS %v", raw, u, err, u.Embedded(), u.Single(), u.TLS())
		}
		if u.String() != want.printed {
			t.Errorf("%s is printed as %s, want %s", raw, u, want.printed)
		}
		if printed := fmt.Sprintf("%v %+v %#v %s %q", u, u, u, u, u); strings.Contains(printed, "geheim") || strings.Contains(printed, "ann") {
			t.Errorf("the account is in %s", printed)
		}
	}
	for _, raw := range []string{"http://geheim", "redis-cluster://", "redis://u:geheim@h/x", "redis+sentinel://geheim"} {
		if u, err := ParseURL(raw); err == nil || strings.Contains(err.Error(), "geheim") || !u.Embedded() {
			t.Errorf("%s: %v, %v", raw, u, err)
		}
	}
}
