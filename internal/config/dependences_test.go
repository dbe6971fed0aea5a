package config

import "testing"

// TestDependencesNameSettings: a row that names a setting that does not exist panics here, and not only when an operator gives another one.
func TestDependencesNameSettings(t *testing.T) {
	c := defaults()
	for _, d := range dependences {
		if c.has(d.setting) {
			t.Errorf("%s is in force by default: it would need others", d.setting)
		}
		d.holds(c)
	}
}
