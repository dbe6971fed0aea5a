package config

import "slices"

// live are the settings that may change while the process runs.
var live = []string{
	"log-level", "deny", "allow", "operators", "max-clients", "max-locks-per-user", "max-bulk",
	"client-output-buffer-limit", "idle-timeout", "handshake-timeout", "drain-delay", "drain-timeout",
}

// Texts are what was given of settings, as it was written, by name. They are not shown: there are passwords among them.
type Texts map[string]written

// written is what was given of a setting, and where.
type written struct{ text, from string }

// String and GoString keep the secret.
func (t Texts) String() string { return "…" }

// GoString is String, for %#v.
func (t Texts) GoString() string { return t.String() }

func (t Texts) with(name string, raw *rawValue) Texts {
	if t == nil {
		t = Texts{}
	}
	t[name] = written{raw.text, raw.from}
	return t
}

// of is what holds of a setting: what was given, or else the default.
func (t Texts) of(name string) string {
	return t.written(name).text
}

func (t Texts) written(name string) written {
	if w, given := t[name]; given {
		return w
	}
	return written{findSetting(name).def, "default"}
}

// Emptied says whether the settings file holds nothing now, although it did before. Most likely it is being written,
// or its disk is full: taken for what the operator wants it would end what the file denies.
func Emptied(before, now Config) bool { return before.File.Holds > 0 && now.File.Holds == 0 }

// Changed are the names of the settings in which now differs from before: those that may change while the process
// runs, and those that need a restart.
func Changed(before, now Config) (taken, restart []string) {
	for _, s := range settings {
		switch {
		case before.Given.of(s.name) == now.Given.of(s.name):
		case slices.Contains(live, s.name):
			taken = append(taken, s.name)
		default:
			restart = append(restart, s.name)
		}
	}
	slices.Sort(taken)
	slices.Sort(restart)
	return taken, restart
}
