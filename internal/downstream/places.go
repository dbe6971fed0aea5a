package downstream

import (
	"net"
	"net/netip"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

const (
	tooMany        = "-ERR max number of clients reached\r\n"
	tooManyAddress = "-ERR max number of clients per address reached\r\n"
)

// place is one client's share of the limits, from its accept to its end, hand-shakes included.
type place struct {
	addr netip.Addr // the address it is counted for, also while there is no MaxPerAddress; zero: none
	kept *kept      // it counts for nothing else; nil: it is an ordinary one
}

// addressOf is the address that a client is counted for; clients of unix sockets have none.
func (g *Gate) addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// takePlace lets one more client in, or returns what to tell it.
func (g *Gate) takePlace(addr netip.Addr) (p place, refusal string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bounds.Load().MaxClients > 0 && g.taken >= g.bounds.Load().MaxClients {
		return p, tooMany
	}
	if !g.count(addr) {
		return p, tooManyAddress
	}
	g.taken++
	return place{addr: addr}, ""
}

// movePlace counts a client for the address that turned out to be its own. A client that is refused keeps its place
// as it was.
func (g *Gate) movePlace(p *place, addr netip.Addr) (refusal string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.kept != nil {
		p.kept.addr = addr
		return ""
	}
	if p.addr == addr {
		return ""
	}
	if !g.count(addr) {
		return tooManyAddress
	}
	g.uncount(p.addr)
	p.addr = addr
	return ""
}

func (g *Gate) leavePlace(p place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.kept != nil {
		g.leaveKept(p.kept)
		return
	}
	g.taken--
	g.uncount(p.addr)
}

// count is called with mu held.
func (g *Gate) count(addr netip.Addr) bool {
	if !addr.IsValid() {
		return true
	}
	if most := g.bounds.Load().MaxPerAddress; most > 0 && g.byAddress[addr] >= most {
		return false
	}
	g.byAddress[addr]++
	return true
}

// uncount is called with mu held.
func (g *Gate) uncount(addr netip.Addr) {
	if !addr.IsValid() {
		return
	}
	if g.byAddress[addr]--; g.byAddress[addr] == 0 {
		delete(g.byAddress, addr)
	}
}

// noteRefused counts and logs a client that was not let in.
func (g *Gate) noteRefused(refusal string, from net.Addr) {
	telemetry.ClientsRejected.Add(1)
	g.log.Warn("client refused", "said", refusal[1:len(refusal)-2], "client", from.String())
}
