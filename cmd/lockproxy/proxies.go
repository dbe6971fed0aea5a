package main

import (
	"os"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxies"
)

// openProxies has this proxy know of the others that keep their locks where it does. The embedded store has one proxy.
func (a *app) openProxies() {
	host, _ := os.Hostname() // people are shown it
	a.proxies = proxies.New(proxies.ExchangeOptions{
		Self:  proxies.Proxy{ID: a.uuid, Host: host, Version: version, Started: time.Now()},
		Locks: a.locks, Events: a.events.Log, Home: a.home(), Quorum: len(a.quorum) > 0,
	})
}

// home is where the proxies meet: at the locks, or at the data with a quorum; nil: this one is alone.
func (a *app) home() *proxies.Home {
	at := a.upstream
	if a.cfg.Locks.Apart() {
		at = a.apart
	}
	switch {
	case a.store != nil:
		return nil
	case at.cluster != nil:
		return proxies.InCluster(at.cluster, a.log)
	}
	return proxies.At(at.control)
}
