package backend

import (
	"bytes"
	"testing"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// A refused command is refused whatever follows it. Only CLIENT TRACKING has a call that switches it off.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, call string
		want       bool
	}{
		{"client|tracking", "CLIENT TRACKING ON", true},
		{"client|tracking", "CLIENT TRACKING off", false},
		{"client|tracking", "CLIENT TRACKING OFF BCAST", true},
		{"shutdown", "SHUTDOWN", true},
		{"shutdown", "SHUTDOWN NOSAVE OFF", true},
		{"monitor", "MONITOR", true},
	} {
		reply, err := refused(&commandtable.Command{Clustered: commandtable.ClusteredOf(c.name)}, bytes.Fields([]byte(c.call)))
		if refused := err != nil; refused != c.want {
			t.Errorf("%s: %q, %v", c.call, reply, err)
		}
	}
}
