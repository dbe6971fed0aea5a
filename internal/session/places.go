package session

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
	addr netip.Addr // counted under; zero: under none
}

// addressOf is what a client is counted under. Those of a unix socket all have the same address: none.
func (s *Server) addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || s.o.MaxPerAddress <= 0 {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// takePlace lets one more client in, or returns what to tell it.
func (s *Server) takePlace(addr netip.Addr) (p place, refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.MaxClients > 0 && s.taken >= s.o.MaxClients {
		return p, tooMany
	}
	if !s.count(addr) {
		return p, tooManyAddress
	}
	s.taken++
	return place{addr}, ""
}

// movePlace counts a client under the address that turned out to be its own. A refused one keeps its place as it was.
func (s *Server) movePlace(p *place, addr netip.Addr) (refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.addr == addr {
		return ""
	}
	if !s.count(addr) {
		return tooManyAddress
	}
	s.uncount(p.addr)
	p.addr = addr
	return ""
}

func (s *Server) leavePlace(p place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	s.uncount(p.addr)
}

// count is called with mu held.
func (s *Server) count(addr netip.Addr) bool {
	if !addr.IsValid() {
		return true
	}
	if s.byAddress[addr] >= s.o.MaxPerAddress {
		return false
	}
	s.byAddress[addr]++
	return true
}

// uncount is called with mu held.
func (s *Server) uncount(addr netip.Addr) {
	if !addr.IsValid() {
		return
	}
	if s.byAddress[addr]--; s.byAddress[addr] == 0 {
		delete(s.byAddress, addr)
	}
}

// noteRefused counts a client that was not let in, and says so in the log from time to time.
func (s *Server) noteRefused(refusal string, from net.Addr) {
	telemetry.ClientsRejected.Add(1)
	s.refusals.do(func(more int) {
		s.log.Warn("client refused", "said", refusal[1:len(refusal)-2], "client", from.String(), "others-since-last-told", more)
	})
}
