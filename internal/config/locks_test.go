package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestLocksSettings: the locks' Redis is of every kind that upstream is, and shows no password.
func TestLocksSettings(t *testing.T) {
	for args, want := range map[string]string{
		"--upstream redis://d --locks redis://u:secret@l:1":                                 "",
		"--upstream redis-cluster://d --locks redis-cluster://u:secret@l,m":                 "",
		"--upstream redis://d --locks unix:///l.sock":                                       "",
		"--upstream redis://d --locks redis+sentinel://s/m --sentinel-password-file f":      "",
		"--upstream redis://d --locks redis+sentinel://s/m?sentinel-user=w":                 "sentinel-user needs",
		"--upstream redis://d --locks redis://svc@l --locks-password-file f":                "",
		"--upstream redis://d --locks rediss://l --upstream-tls-ca f":                       "",
		"--upstream redis://d --locks redis://l --upstream-tls-ca f":                        "does nothing without a rediss://",
		"--upstream redis://d --locks redis://svc:secret@l --locks-password-file f":         "has a password, too",
		"--upstream redis://d --locks redis-cluster://svc:secret@l --locks-password-file f": "has a password, too",
		"--upstream redis://d --locks-password-file f":                                      "does nothing without locks",
		"--locks redis://l":                                   "needs an upstream",
		"--upstream redis://d --locks redis://l/3":            "must name none",
		"--upstream redis://d --locks redis+sentinel://s/m/3": "must name none",
		"--upstream redis://d --locks http://u:secret@l":      "not of the form redis://",
		"--upstream redis://d --locks redis://l --quorum redis://a --quorum redis://b,redis://secret@c": "the nodes of quorum keep the locks",
	} {
		c, err := Parse(strings.Fields(args))
		text := fmt.Sprintf("%v %v %+v %#v", err, c, c, c)
		if (err == nil) != (want == "") || !strings.Contains(text, want) || strings.Contains(text, "secret") {
			t.Errorf("%s: %v", args, err)
		}
		for _, s := range InForce(c, c, nil) {
			if strings.Contains(s.Value, "secret") {
				t.Errorf("%s: CONFIG shows %s", args, s.Value)
			}
		}
	}
}
