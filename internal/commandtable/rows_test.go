package commandtable

import (
	"strings"
	"testing"
)

// Nobody adds a row without saying why.
func TestRowsHaveNotes(t *testing.T) {
	seen := make(map[string]bool)
	for _, rows := range [][]Command{stateful, optional, refused, passed, scripted, echoing, threaded} {
		for _, c := range rows {
			if !strings.HasSuffix(c.Note, ".") || strings.Contains(c.Note, "|") {
				t.Errorf("%s: its note is %q, it wants a sentence", c.Name, c.Note)
			}
			if seen[c.Name] || c.Name != strings.ToLower(c.Name) {
				t.Errorf("%s: a second row, or not in lower case", c.Name)
			}
			seen[c.Name] = true
		}
	}
	for name := range remarks {
		if seen[name] {
			t.Errorf("%s: a remark on a command that has a row", name)
		}
	}
}

// Harmless says that there is a remark on a command that is forwarded.
func Harmless(name string) bool {
	_, is := remarks[name]
	return is
}
