package config

import (
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/inforce"
)

// InForce is what holds of every setting: of those that may change while the process runs what latest says, of the
// others what start says. holding are values that hold in place of what was given, by name.
func InForce(start, latest Config, holding map[string]string) (all []inforce.Setting) {
	for _, s := range settings {
		one := inforce.Setting{Name: s.name, Live: slices.Contains(live, s.name)}
		from := start
		if one.Live {
			from = latest
		}
		one.Value, one.From = from.shown(s.name), from.Given.written(s.name).from
		if next := latest.shown(s.name); from.Given.of(s.name) != latest.Given.of(s.name) {
			if next == one.Value {
				next += " (its user, password or spelling is another)"
			}
			one.Waiting = &next
		}
		if value, other := holding[s.name]; other {
			one.Value = value
		}
		all = append(all, one)
	}
	return all
}

// shown is the value of a setting without what is secret: users and passwords are in URLs.
func (c Config) shown(name string) string {
	switch text := c.Given.of(name); {
	case text == "":
		return ""
	case name == "upstream":
		return c.Upstream.URL.String()
	case name == "locks":
		return c.Locks.URL.String()
	case name == "quorum":
		var all []string
		for _, node := range c.Quorum.Nodes {
			all = append(all, node.String())
		}
		return strings.Join(all, ",")
	default:
		return text
	}
}
