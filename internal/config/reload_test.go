package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestChanged(t *testing.T) {
	parse := func(args ...string) Config {
		t.Helper()
		c, err := Parse(args)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := parse("--upstream", "redis://:hunter2@db", "--deny", "get", "--max-clients", "10000")
	taken, restart := Changed(before, parse("--upstream", "redis://:hunter3@db", "--deny", "get,set", "--idle-timeout", "0"))
	if !slices.Equal(taken, []string{"deny"}) || !slices.Equal(restart, []string{"upstream"}) {
		t.Errorf("taken %q, restart %q", taken, restart)
	}
	if taken, restart := Changed(before, before); taken != nil || restart != nil {
		t.Errorf("of the same: taken %q, restart %q", taken, restart)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, before) + fmt.Sprintf(verb, before.Given); strings.Contains(text, "hunter") {
			t.Errorf("%s shows the password", verb)
		}
	}
	for _, name := range live {
		if findSetting(name) == nil {
			t.Errorf("there is no setting %s", name)
		}
	}
}
