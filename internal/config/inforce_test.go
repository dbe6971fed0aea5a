package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/inforce"
)

// TestInForce: live settings are as they were read last, the others as at the start, and the value that waits for a
// restart is told beside.
func TestInForce(t *testing.T) {
	t.Setenv("LOCKPROXY_LOCK_WATCHDOG_TIMEOUT", "7s")
	file := write(t, "max-locks-per-user: 3\ndeny: [get, set]\nlisten: 127.0.0.1:1\nupstream: redis://a:b@db/2\nmetrics-listen: 127.0.0.1:2\n")
	parse := func(args ...string) Config {
		t.Helper()
		c, err := Parse(append(args, "--max-bulk", "1kb", "--max-clients", "90"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	start := parse("--config", file)
	latest := parse("--config", write(t, "max-locks-per-user: 4\nlisten: ['127.0.0.1:1', 'unix:///a@b']\nupstream: redis://a:c@db/2\nlock-watchdog-timeout: 9s\n"))
	got := map[string]inforce.Setting{}
	for _, s := range InForce(start, latest, map[string]string{"max-clients": "70"}) {
		got[s.Name] = s
	}
	if len(got) != len(settings) {
		t.Errorf("%d settings of %d", len(got), len(settings))
	}
	for _, want := range []struct {
		name, value, from string
		live              bool
		waiting           *string
	}{
		{"max-locks-per-user", "4", "file", true, nil},
		{"deny", "", "default", true, nil},
		{"max-bulk", "1kb", "flag", true, nil},
		{"max-clients", "70", "flag", true, nil},
		{"lock-watchdog-timeout", "7s", "environment", false, nil},
		{"listen", "127.0.0.1:1", "file", false, new("127.0.0.1:1,unix:///a@b")},
		{"metrics-listen", "127.0.0.1:2", "file", false, new("")},
		{"upstream", "redis://db:6379/2", "file", false, new("redis://db:6379/2 (its user, password or spelling is another)")},
		{"quorum", "", "default", false, nil},
		{"wait-poll", "3s", "default", false, nil},
	} {
		g := got[want.name]
		if g.Value != want.value || g.From != want.from || g.Live != want.live {
			t.Errorf("%s: %+v, want %+v", want.name, g, want)
		}
		if (g.Waiting == nil) != (want.waiting == nil) || g.Waiting != nil && *g.Waiting != *want.waiting {
			t.Errorf("%s: the value that waits is another than %v", want.name, want.waiting)
		}
	}
}

// TestInForceKeepsSecrets: no password is among the values, whatever URL it was in and wherever that came from, nor
// among what waits for a restart, nor in the fault of a file that holds one.
func TestInForceKeepsSecrets(t *testing.T) {
	const secret = "MARKED"
	plain, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{
		"redis://user:MARKED@a:1", "redis://:MARKED@a:1/3", "rediss://user:MARKED@a", "unix://user:MARKED@/a/b?db=2",
		"redis-cluster://user:MARKED@a:1,b:2", "rediss-cluster://user:MARKED@a:1",
		"redis+sentinel://user:MARKED@a:1,b:2/main/3?sentinel-password=MARKED&sentinel-user=u",
		"rediss+sentinel://a:1/main?sentinel-password=MARKED",
	} {
		for _, setting := range []string{"upstream", "quorum"} {
			text, args := url, []string(nil)
			if setting == "quorum" {
				text, args = url+","+strings.ReplaceAll(url, "a", "c")+","+strings.ReplaceAll(url, "a", "d"), []string{"--upstream", "redis://data"}
				if !strings.HasPrefix(url, "redis://") && !strings.HasPrefix(url, "rediss://") {
					continue // no node has such a URL
				}
			}
			for _, from := range []string{"flag", "environment", "file"} {
				given := args
				switch from {
				case "flag":
					given = append(given, "--"+setting, text)
				case "environment":
					t.Setenv(envName(setting), text)
				case "file":
					t.Setenv(envName(setting), "")
					given = append(given, "--config", write(t, fmt.Sprintf("%s: %q\n", setting, text)))
				}
				c, err := Parse(given)
				if err != nil {
					t.Errorf("%s %s: %v", setting, url, err)
					continue
				}
				shown := ""
				for _, of := range [][2]Config{{c, c}, {plain, c}, {c, plain}} {
					for _, s := range InForce(of[0], of[1], nil) {
						shown += fmt.Sprintf("%+v", s)
						if s.Name == setting && of[0].Given != nil && s.From != from {
							t.Errorf("%s by %s is from %s", setting, from, s.From)
						}
						if s.Waiting != nil {
							shown += *s.Waiting
						}
					}
				}
				if strings.Contains(shown, secret) {
					t.Errorf("%s %s by %s is shown: %s", setting, url, from, shown)
				}
			}
		}
	}
	for _, yaml := range []string{"upstream: redis://u:MARKED@a:b:c\n", "listen: redis://u:MARKED@a:1\n", "upstream redis://u:MARKED@a\n",
		"redis://u:MARKED@a: 1\n", "quorum: [redis://u:MARKED@a]\n", "upstream: redis+sentinel://a:1/m/x?sentinel-password=MARKED\n",
		"upstream: [redis://u:MARKED@a]\n", "cluster-address-map: redis://u:MARKED@a\nxx: 1\n"} {
		_, err := Parse([]string{"--config", write(t, yaml)})
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", yaml, err)
		}
	}
}
