package session

import (
	"strings"
	"testing"
)

// operatorCalls are calls of LOCKPROXY that are answered without Redis.
var operatorCalls = [][]string{{"STATS"}, {"HELP"}, {"NODES"}, {"LOCKS"}, {"WAITERS"}, {"CLIENTS"}}

// operate has somebody who has just connected send a call of LOCKPROXY.
func (p *proxy) operate(call ...string) string {
	p.t.Helper()
	return dialWire(p.t, p.addr).do(append([]string{"LOCKPROXY"}, call...)...)
}

func operatedByDefault(o *ServerOptions) { o.Operators = []string{"default"} }

// An operator who connects while Redis is away is answered if Redis asked for no password when it was last there.
func TestOperatorsOutliveRedis(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, operatedByDefault)
	other := startProxy(t, server.URL(), nil)
	for _, one := range []*proxy{p, other} {
		eventually(t, "it is known whether Redis asks for a password", one.srv.needKnown)
	}
	server.Kill()
	for _, call := range operatorCalls {
		if got := p.operate(call...); got == "<end>" || got[0] == '-' {
			t.Errorf("%q without Redis: %q", call, got)
		}
	}
	w := dialWire(t, p.addr)
	if got := w.do("LOCKPROXY", "STATS"); got == "<end>" || got[0] == '-' {
		t.Fatalf("STATS without Redis: %q", got)
	}
	if got := w.do("CLIENT", "GETNAME"); got != "<end>" { // the answer to an operator has let nobody in
		t.Errorf("CLIENT GETNAME without Redis: %q", got)
	}
	if got := other.operate("STATS"); !strings.HasPrefix(got, "-NOPERM this user has no permissions") {
		t.Errorf("STATS of one who is no operator: %q", got)
	}
}

// Whoever would have to authenticate first is not let in because Redis is away.
func TestNobodyOperatesWithoutThePassword(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, operatedByDefault)
	eventually(t, "it is known whether Redis asks for a password", p.srv.needKnown)
	w := dialWire(t, p.addr)
	w.expect("+PONG\r\n", "PING")
	do := admin(t, server)
	do("CONFIG", "SET", "requirepass", "secret")
	eventually(t, "it is known that Redis asks for a password", p.srv.asksPassword)
	server.Kill()
	for _, call := range operatorCalls {
		if got := p.operate(call...); got != "-"+noAuth+"\r\n" {
			t.Errorf("%q without Redis and the password: %q", call, got)
		}
	}
	if got := w.do("LOCKPROXY", "STATS"); got[0] != '*' {
		t.Errorf("STATS of a client that was let in before there was a password: %q", got)
	}
}

// Before Redis has said whether it asks for a password, operators are told that it is not reached.
func TestOperatorsBeforeRedisIsThere(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	server.Kill()
	p := startProxy(t, server.URL(), func(o *ServerOptions) {
		operatedByDefault(o)
		o.Embedded = true // the test does not wait for Redis' commands
	})
	for _, call := range operatorCalls {
		if got := p.operate(call...); !strings.HasPrefix(got, "-ERR upstream unavailable: ") {
			t.Errorf("%q before Redis is there: %q", call, got)
		}
	}
}
