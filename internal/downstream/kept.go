package downstream

import (
	"net"
	"net/netip"
	"slices"
)

// keptPlaces is how many places there are beyond MaxClients and MaxPerAddress, for operators who come to see who has all others. The oldest client there
// that has not shown itself to be one makes room for the next.
const keptPlaces = 8

// kept is a place for operators.
type kept struct {
	conn     net.Conn
	addr     netip.Addr // the client's
	operates bool       // Gate.mu guards it
}

// takeKept gives a client that there is no place for one that is kept; nil: there is none.
func (g *Gate) takeKept(conn net.Conn, addr netip.Addr) *kept {
	if g.o.Keeps == nil || !g.o.Keeps() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.kept) >= keptPlaces {
		i := slices.IndexFunc(g.kept, func(k *kept) bool { return !k.operates })
		if i < 0 {
			return nil
		}
		g.kept[i].conn.Close()
		g.kept = slices.Delete(g.kept, i, i+1)
	}
	k := &kept{conn: conn, addr: addr}
	g.kept = append(g.kept, k)
	return k
}

// leaveKept is called with mu held. A client that has made room has left already.
func (g *Gate) leaveKept(k *kept) {
	g.kept = slices.DeleteFunc(g.kept, func(one *kept) bool { return one == k })
}

// Kept says that the client has a place that is kept for operators, and no other one has become free meanwhile. The goroutine that reads calls it.
func (c *Conn) Kept() bool {
	k := c.place.kept
	if k == nil {
		return false
	}
	p, refusal := c.gate.takePlace(k.addr)
	if refusal != "" {
		return true
	}
	c.gate.leavePlace(c.place)
	c.place = p
	return false
}

// Keep says that the client is an operator, who does not make room for others. The goroutine that reads calls it.
func (c *Conn) Keep() {
	if k := c.place.kept; k != nil {
		c.gate.mu.Lock()
		k.operates = true
		c.gate.mu.Unlock()
	}
}

// NoteRefused counts and logs that the client is refused for want of a place, and returns the error that it is told.
func (c *Conn) NoteRefused() (line string) {
	c.gate.noteRefused(tooMany, c.RemoteAddr())
	return tooMany[1 : len(tooMany)-2]
}
