package session

import (
	"testing"
	"time"
)

// changed puts other limits in force.
func (p *proxy) changed(l Limits) {
	p.t.Helper()
	if err := p.srv.Change(l, CommandRules{}); err != nil {
		p.t.Fatal(err)
	}
}

// New time-outs hold for clients that are there and send nothing.
func TestChangedTimeOuts(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, func(o *Options) { o.HandshakeTimeout = 0 })
	idle, silent, holder := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	eventually(t, "all are there", func() bool { return p.srv.clients.n.Load() == 3 })
	idle.expect("+PONG\r\n", "PING")
	holder.expect("+OK\r\n", "LOCK", "l")
	p.changed(Limits{HandshakeTimeout: 200 * time.Millisecond})
	if got := silent.frame(); got != "<end>" {
		t.Errorf("who has sent nothing: %q", got)
	}
	idle.expect("+PONG\r\n", "PING")
	p.changed(Limits{IdleTimeout: 200 * time.Millisecond})
	if got := idle.frame(); got != "<end>" {
		t.Errorf("who is idle: %q", got)
	}
	holder.expect(":1\r\n", "UNLOCK", "l")
	if got := holder.frame(); got != "<end>" {
		t.Errorf("who holds nothing any more: %q", got)
	}
}

// Clients that came while there was no limit for their address count for the one that is set later.
func TestChangedClientsPerAddress(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	first, second := dialWire(t, p.addr), dialWire(t, p.addr)
	first.expect("+PONG\r\n", "PING")
	second.expect("+PONG\r\n", "PING")
	p.changed(Limits{MaxPerAddress: 2})
	if got := dialWire(t, p.addr).rest(); got != tooManyAddress {
		t.Errorf("the third: %q", got)
	}
	p.changed(Limits{})
	dialWire(t, p.addr).expect("+PONG\r\n", "PING")
}
