package downstream

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

const (
	tooMany        = "-ERR max number of clients reached\r\n"
	tooManyAddress = "-ERR max number of clients per address reached\r\n"
)

// keptPlaces is how many places there are beyond MaxClients and MaxPerAddress, for operators who come to see who has
// all others. The oldest client there that has not shown itself to be one makes room for the next.
const keptPlaces = 8

// places bound how many clients there are.
type places struct {
	bounds *atomic.Pointer[Bounds]
	keeps  func() bool // some places are kept for operators; nil: none are
	log    *slog.Logger
	events *events.Log

	mu        sync.Mutex // guards what follows, and among and operates of each Place
	n         int        // clients, those in a hand-shake included
	byAddress map[netip.Addr]int
	kept      []*Place // the oldest first; they count for nothing else
	operators []*Place // the same, of those who came by a listener of operators
}

// Place is one client's share of the limits, from its accept to its end, hand-shakes included.
type Place struct {
	of       *places
	addr     netip.Addr // the address it is counted for, also while there is no MaxPerAddress; zero: none
	among    *[]*Place  // those for operators of which it is one; nil: none. The goroutine that reads alone changes it
	operates bool       // the client is an operator
	socket   net.Conn
}

// addressOf is the address that a client is counted for; clients of unix sockets have none.
func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// enter lets one more client in, or returns what to tell it. An operator has always a place.
func (p *places) enter(socket net.Conn, addr netip.Addr, operator bool) (one *Place, refusal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one = &Place{of: p, addr: addr, socket: socket}
	if operator {
		keep(one, &p.operators)
		return one, ""
	}
	if refusal = p.add(addr); refusal == "" {
		return one, ""
	}
	if p.keeps != nil && p.keeps() && keep(one, &p.kept) {
		return one, ""
	}
	return nil, refusal
}

// add counts a client, or returns what to tell it. mu is held.
func (p *places) add(addr netip.Addr) (refusal string) {
	if most := p.bounds.Load().MaxClients; most > 0 && p.n >= most {
		return tooMany
	}
	if !p.count(addr) {
		return tooManyAddress
	}
	p.n++
	return ""
}

// count is called with mu held.
func (p *places) count(addr netip.Addr) bool {
	if !addr.IsValid() {
		return true
	}
	if most := p.bounds.Load().MaxPerAddress; most > 0 && p.byAddress[addr] >= most {
		return false
	}
	p.byAddress[addr]++
	return true
}

// uncount is called with mu held.
func (p *places) uncount(addr netip.Addr) {
	if !addr.IsValid() {
		return
	}
	if p.byAddress[addr]--; p.byAddress[addr] == 0 {
		delete(p.byAddress, addr)
	}
}

// keep gives a client one of the places for operators. mu is held.
func keep(one *Place, among *[]*Place) bool {
	if len(*among) >= keptPlaces {
		i := slices.IndexFunc(*among, func(k *Place) bool { return !k.operates })
		if i < 0 {
			return false
		}
		(*among)[i].socket.Close()
		*among = slices.Delete(*among, i, i+1)
	}
	one.among = among
	*among = append(*among, one)
	return true
}

// unkeep is called with mu held. A client that has made room is not there any more.
func (p *Place) unkeep() {
	*p.among = slices.DeleteFunc(*p.among, func(k *Place) bool { return k == p })
}

// total is how many places are taken.
func (p *places) total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// noteRefused counts and logs a client that was not let in.
func (p *places) noteRefused(refusal string, from net.Addr) {
	telemetry.ClientsRejected.Add(1)
	said := refusal[1 : len(refusal)-2]
	p.log.Warn("client refused", "said", said, "client", from.String())
	p.events.Add(events.Event{At: time.Now(), Kind: events.Refusal, Client: events.Client{Addr: from.String()}, Reason: said})
}

// NoteRefused counts and logs that the client is refused for want of a place, and returns the error that it is told.
func (p *Place) NoteRefused(from net.Addr) (line string) {
	p.of.noteRefused(tooMany, from)
	return tooMany[1 : len(tooMany)-2]
}

// move counts the client for the address that turned out to be its own. A client that is refused keeps its place as it
// was.
func (p *Place) move(addr netip.Addr) (refusal string) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.among == nil && p.addr != addr {
		if !p.of.count(addr) {
			return tooManyAddress
		}
		p.of.uncount(p.addr)
	}
	p.addr = addr
	return ""
}

// Leave makes room for another client.
func (p *Place) Leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.among != nil {
		p.unkeep()
		return
	}
	p.of.n--
	p.of.uncount(p.addr)
}

// Kept says that the client has a place that is kept for operators, and no other one has become free meanwhile. The
// goroutine that reads calls it.
func (p *Place) Kept() bool {
	if p.among == nil {
		return false
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.among == &p.of.operators || p.of.add(p.addr) != "" {
		return true
	}
	p.unkeep()
	p.among = nil
	return false
}

// Keep says that the client is an operator, who does not make room for others.
func (p *Place) Keep() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.operates = true
}
