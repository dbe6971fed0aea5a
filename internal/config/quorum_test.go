package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestPasswordFiles(t *testing.T) {
	sentinels, three := "redis+sentinel://s/m", "--quorum redis://a,redis://b,redis://c"
	for args, want := range map[string]string{
		"--upstream redis://svc@d --upstream-password-file f":                                          "",
		"--upstream redis-cluster://svc@d,e --upstream-password-file f":                                "",
		"--upstream " + sentinels + "?sentinel-user=w --sentinel-password-file f":                      "",
		"--upstream redis://d --quorum-password-file f " + three:                                       "",
		"--upstream-password-file f":                                                                   "does nothing without an upstream",
		"--upstream redis://svc:secret@d --upstream-password-file f":                                   "has a password, too",
		"--upstream redis-cluster://svc:secret@d,e --upstream-password-file f":                         "has a password, too",
		"--upstream redis://d --sentinel-password-file f":                                              "does nothing without Sentinels",
		"--upstream " + sentinels + "?sentinel-password=secret --sentinel-password-file f":             "has a sentinel-password, too",
		"--upstream " + sentinels + "?sentinel-user=w":                                                 "sentinel-user needs",
		"--upstream redis://d --quorum-password-file f":                                                "does nothing without quorum",
		"--upstream redis://d --quorum-password-file f --quorum redis://a,redis://b,redis://:secret@c": "has a password, too",
	} {
		_, err := Parse(strings.Fields(args))
		if text := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(text, want) || strings.Contains(text, "secret@") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestQuorumSettings(t *testing.T) {
	three := "redis://a:1,redis://:secret@b:1,unix:///c.sock"
	for args, want := range map[string]string{
		"--upstream redis://d --quorum " + three:                                                                   "",
		"--quorum " + three:                                                                                        "needs an upstream",
		"--upstream redis://d --quorum redis://a,redis://b":                                                        "too few",
		"--upstream redis://d --quorum redis://a,redis://b,redis://x:secret@a":                                     "redis://a:6379 is named twice",
		"--upstream redis://d --quorum redis://a,redis://b,redis://b:6379/1":                                       "redis://b:6379/1 is named twice",
		"--upstream redis://d --upstream-tls-ca f --quorum redis://a,redis://b,redis://c":                          "does nothing without a rediss://",
		"--upstream redis://d --upstream-tls-ca f --quorum redis://a,redis://b,rediss://c":                         "",
		"--upstream redis://d --quorum redis://a,redis://b,http://secret":                                          "not of the form redis://",
		"--upstream redis://d --quorum redis://a,redis://b,redis+sentinel://u:secret@s/m":                          "not a redis://",
		"--upstream redis://d --quorum-max-lease 20s --quorum " + three:                                            "below lock-watchdog-timeout",
		"--upstream redis://d --quorum-max-lease 24h0m1s --quorum " + three:                                        "quorum-max-lease: 24h0m1s is above 24h0m0s",
		"--upstream redis://d --quorum-max-lease 2562047h --quorum " + three:                                       "is above 24h0m0s",
		"--upstream redis://d --quorum-max-lease 24h --quorum " + three:                                            "",
		"--upstream redis://d --quorum-node-timeout 4s --quorum " + three:                                          "quorum-node-timeout: 4s",
		"--upstream redis://d --quorum-node-timeout 0 --quorum " + three:                                           "quorum-node-timeout: 0s",
		"--upstream redis://d --quorum-max-lease 2s --lock-watchdog-timeout 2s --quorum " + three:                  "",
		"--upstream redis://d --quorum-max-lease 2s --lock-watchdog-timeout 1s --quorum " + three:                  "quorum-node-timeout: 200ms",
		"--upstream redis://d --quorum redis://a --quorum redis://b --quorum redis://c --quorum-node-timeout 50ms": "",
	} {
		c, err := Parse(strings.Fields(args))
		if text := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(text, want) || strings.Contains(text, "secret") {
			t.Errorf("%s: %v", args, err)
		}
		if err != nil {
			continue
		}
		if len(c.Quorum.Nodes) != 3 || c.Quorum.MaxLease < 2*time.Second {
			t.Errorf("%s: %+v", args, c)
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", c, c, c), "secret") {
			t.Errorf("%s: a password is shown", args)
		}
	}
}
