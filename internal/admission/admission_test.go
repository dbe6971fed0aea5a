package admission

import (
	"io"
	"net"
	"testing"
	"time"
)

// A newcomer gets the place of the oldest, and a place that is left is free.
func TestNewest(t *testing.T) {
	t.Parallel()
	n := Newest{Most: 2}
	var all []net.Conn
	enter := func() {
		here, _ := net.Pipe()
		all = append(all, here)
		n.Enter(here)
	}
	closed := func(c net.Conn) bool { return c.SetDeadline(time.Time{}) == io.ErrClosedPipe }
	enter()
	enter()
	n.Leave(all[0])
	n.Leave(all[0])
	enter()
	if closed(all[0]) || closed(all[1]) {
		t.Error("a connection is closed though there is a free place")
	}
	enter()
	if !closed(all[1]) || closed(all[2]) || len(n.conns) != n.Most {
		t.Errorf("the oldest is not the one that goes, or %d have places", len(n.conns))
	}
}
