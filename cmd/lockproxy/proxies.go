package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/proxies"
	"github.com/lockproxy/lockproxy/internal/systemd"
)

// introduction is what this proxy says of itself to the others, as the settings have it: an address with TLS before one
// without. Those of sockets that systemd has opened, and of port 0, are not known yet.
func introduction(uuid string, cfg config.Config) proxies.Proxy {
	host, _ := os.Hostname() // people are shown it, and a page on loopback is for the same one
	p := proxies.Proxy{ID: uuid, Record: proxies.Record{Host: host, Version: versionText(), Started: time.Now(),
		Secure: cfg.Admin.TLSCert != ""}}
	if known(cfg.Admin.Page) {
		p.Page = cfg.Admin.Page
	}
	for _, address := range slices.Concat([]string{cfg.Listen.Announce}, cfg.TLS.Listen, cfg.Listen.Addresses) {
		if p.Addr == "" && known(address) {
			p.Addr = address
		}
	}
	return p
}

// known says that an address of the settings is where others find who listens there.
func known(address string) bool {
	return !strings.HasPrefix(address, systemd.Prefix) && !strings.HasSuffix(address, ":0")
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
