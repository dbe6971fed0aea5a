package main

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// introduce notes what this proxy says of itself to the others: an address with TLS before one without, and before a
// unix socket.
func (a *app) introduce() {
	host, _ := os.Hostname() // people are shown it, and a page on loopback is for the same one
	a.self = proxies.Record{Host: host, Version: versionText(), Started: time.Now(), Addr: a.cfg.Listen.Announce}
	if a.self.Addr != "" {
		return
	}
	rank := func(l listener) int {
		_, tcp := l.Addr().(*net.TCPAddr)
		switch {
		case l.entry.TLS != nil:
			return 2
		case tcp:
			return 1
		}
		return 0
	}
	best := -1
	for _, l := range a.listeners {
		if n := rank(l); n > best {
			best, a.self.Addr = n, l.Addr().String()
		}
	}
}

// said is that, on a machine of that address.
func (a *app) said(machine string) proxies.Record {
	r := a.self
	r.Addr = proxies.Reached(r.Addr, machine, false)
	if a.page != nil {
		r.Page, r.Cert = proxies.Reached(a.page.Addr(), machine, true), a.page.Entry.Fingerprint()
	}
	return r
}

// allProxies are this proxy and the others. Only a page can ask others for more than what they say in Redis.
func (a *app) allProxies(ctx context.Context) []proxies.State {
	if a.page != nil {
		return a.page.AllProxies(ctx)
	}
	known, trouble := a.proxies.All()
	now := a.locks.Stats()
	all := []proxies.State{proxies.Here(a.proxies.Self(), trouble, int(now.Held), int(now.Waiting))}
	for _, other := range known {
		s := proxies.State{Proxy: other, State: "up", Trouble: "this proxy has no page to ask with: see admin-listen", Since: other.Started}
		if other.Gone {
			s.State, s.Since = "gone", other.Until
		}
		all = append(all, s)
	}
	return all
}

// ofOthers is what others hold and wait for.
func (a *app) ofOthers(ctx context.Context) []lock.Entry {
	if a.page == nil {
		return nil
	}
	return a.page.OfOthers(ctx)
}
