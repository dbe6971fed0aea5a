package downstream

import (
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

	mu        sync.Mutex // guards what follows
	n         int        // clients, those in a hand-shake included
	operators []*Place   // the oldest first; they do not count in n
}

// Place is one client's share of the limits, from its accept to its end, hand-shakes included.
type Place struct {
	of       *places
	operator bool
	socket   net.Conn
}

// enter lets one more client in; nil: there are as many as may be. An operator has always a place.
func (p *places) enter(socket net.Conn, operator bool) *Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := &Place{p, operator, socket}
	if operator {
		if len(p.operators) == operatorPlaces {
			p.operators[0].socket.Close()
			p.operators = slices.Delete(p.operators, 0, 1)
		}
		p.operators = append(p.operators, one)
		return one
	}
	if most := p.bounds.Load().MaxClients; most > 0 && p.n >= most {
		return nil
	}
	p.n++
	return one
}

// Leave makes room for another client.
func (p *Place) Leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.operator {
		p.of.operators = slices.DeleteFunc(p.of.operators, func(o *Place) bool { return o == p })
		return
	}
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
