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

// WAIT goes on for as long as a number is too low, and no longer.
func TestEnough(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply, wanted string
		want          bool
	}{
		{":1\r\n", "1", true}, {":1\r\n", "2", false}, {"*2\r\n:1\r\n:2\r\n", "1 2", true}, {"*2\r\n:1\r\n:1\r\n", "1 2", false}, {"-ERR no\r\n", "1", true}, {":0\r\n", "x", true},
	} {
		if got := enough([]byte(c.reply), bytes.Fields([]byte(c.wanted))); got != c.want {
			t.Errorf("%q of %s: %v", c.reply, c.wanted, got)
		}
	}
}
