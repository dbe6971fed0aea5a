package downstream

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/admission"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

const tooMany = "-ERR max number of clients reached\r\n"

// operatorPlaces is how many clients there may be at listeners of operators. One more ends the oldest.
const operatorPlaces = 8

// places bound how many clients there are.
type places struct {
	bounds *atomic.Pointer[Bounds]
	log    *slog.Logger
	events *events.Log

	operators admission.Newest // they do not count in n

	mu sync.Mutex // guards n
	n  int        // clients, those in a hand-shake included
}

// Place is one client's share of the limits, from its accept to its end, hand-shakes included.
type Place struct {
	of       *places
	operator net.Conn // its socket; nil: no operator's
}

// takePlace lets one more client in; nil: there are as many as may be. An operator has always a place.
func (p *places) takePlace(socket net.Conn, operator bool) *Place {
	if operator {
		p.operators.Enter(socket)
		return &Place{p, socket}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if most := p.bounds.Load().MaxClients; most > 0 && p.n >= most {
		return nil
	}
	p.n++
	return &Place{of: p}
}

// Leave makes room for another client.
func (p *Place) Leave() {
	if p.operator != nil {
		p.of.operators.Leave(p.operator)
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.n--
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
