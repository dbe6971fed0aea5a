package main

import (
	"os"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxies"
)

// openProxies has this proxy know of the others at its upstream. The embedded store has one proxy.
func (a *app) openProxies() {
	host, _ := os.Hostname() // people are shown it
	a.proxies = proxies.New(proxies.ExchangeOptions{
		Self:  proxies.Proxy{ID: a.uuid, Host: host, Version: versionText(), Started: time.Now()},
		Locks: a.locks, Events: a.events.Log, Home: a.home(), Quorum: len(a.quorum) > 0,
	})
}

// home is where the proxies meet; nil: this one is alone.
func (a *app) home() *proxies.Home {
	switch {
	case a.store != nil:
		return nil
	case a.cluster != nil:
		return proxies.InCluster(a.cluster, a.log)
	}
	return proxies.At(a.control)
}
