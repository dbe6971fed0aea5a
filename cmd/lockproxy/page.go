package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/page"
	"github.com/lockproxy/lockproxy/internal/tlsfiles"
)

// openPage serves the page for operators, if there is to be one.
func (a *app) openPage(ctx context.Context) error {
	set := a.cfg.Admin
	if set.Page == "" {
		return nil
	}
	entry, secure, err := a.pageEntry()
	if err != nil {
		return err
	}
	p := page.New(page.Options{
		Locks: a.locks, Log: a.log, Events: a.events.Log, Credentials: entry, Trouble: a.health.Trouble, Nodes: a.nodes,
		Force: func(ctx context.Context, by lock.ClientInfo, r lock.UnlockRequest) (bool, error) {
			return a.locks.NewClient(by).Unlock(ctx, r)
		},
		Search: func(ctx context.Context, db int, match, cursor string) (string, []lock.Found, error) {
			return a.locks.Find(ctx, db, func() (string, []string, error) {
				return a.server.Operators().Scan(ctx, db, backend.Scan{Cursor: cursor, Match: match, Count: page.KeysAtOnce})
			})
		},
		Proxies: a.proxies,
		People:  page.People{InForce: a.inForce, Drain: a.draining, Clients: a.clients, Kill: a.server.Operators().KillClient},
		About:   page.About{Version: version, Proxy: a.locks.UUID(), Upstream: a.cfg.Upstream.URL.String(), Started: a.proxies.Self().Started},
	})
	if err := p.Listen(ctx, tcpSockets(a.shares()), set.Page, secure); err != nil {
		return fmt.Errorf("admin-listen: %w", err)
	}
	a.page = p
	a.log.Info("the page for operators is there", "listen", set.Page, "tls", secure != nil)
	return nil
}

// unlistenPage leaves the page's address to another process.
func (a *app) unlistenPage() {
	if a.page != nil {
		a.page.Unlisten()
	}
}

func (a *app) closePage() {
	if a.page != nil {
		a.page.Close()
	}
}

// pageEntry is who may see the page, and its TLS; nil: none.
func (a *app) pageEntry() (e page.Credentials, secure *tls.Config, err error) {
	set := a.cfg.Admin
	if e.Token, err = a.token(set.TokenFile); err != nil {
		return e, nil, fmt.Errorf("admin-token-file: %w", err)
	}
	if e.View, err = a.token(set.ViewTokenFile); err != nil {
		return e, nil, fmt.Errorf("admin-view-token-file: %w", err)
	}
	if set.TLSCert == "" {
		return e, nil, nil
	}
	files, err := a.keepFresh(pageFiles(a.cfg))
	if err != nil {
		return e, nil, fmt.Errorf("admin-tls: %w", err)
	}
	auth := tls.NoClientCert
	if set.ClientCA != "" {
		e.Certificates, auth = true, tls.RequireAndVerifyClientCert
	}
	return e, files.Server(auth), nil
}

// leastToken is how long a token must be, in bytes: nobody limits how often one guesses.
const leastToken = 16

// tokenFile has a token of the page.
func tokenFile(name string) tlsfiles.Names { return tlsfiles.Names{Password: name, Least: leastToken} }

// token is the token in a file; nil: there is no file.
func (a *app) token(file string) (func() string, error) {
	if file == "" {
		return nil, nil
	}
	files, err := a.keepFresh(tokenFile(file))
	if err != nil {
		return nil, err
	}
	return files.Password, nil
}

// pageFiles are the files for TLS of the page.
func pageFiles(cfg config.Config) tlsfiles.Names {
	names := tlsfiles.Names{CA: cfg.Admin.ClientCA}
	if cfg.Admin.TLSCert != "" {
		names.Certs, names.Keys = []string{cfg.Admin.TLSCert}, []string{cfg.Admin.TLSKey}
	}
	return names
}

// clients are those that the page shows.
func (a *app) clients(most int, part string) (some []page.Client, of int) {
	found, of := a.server.Operators().Holders(most, part)
	for _, c := range found {
		some = append(some, page.Client{ID: c.ID, Addr: c.Addr, Name: c.Name, User: c.User, DB: c.DB, Proto: c.ClientFacts.Proto,
			Library: c.Library[0], Age: c.Age.Milliseconds(), Idle: c.Idle.Milliseconds(), Last: c.Last, Locks: c.Locks,
			WaitsFor: c.WaitsFor, Waited: c.Waited.Milliseconds()})
	}
	return some, of
}

// mostNodes is how many nodes the page shows.
const mostNodes = 64

// nodes asks the nodes upstream how they are, and tells what is known of a quorum's.
func (a *app) nodes(ctx context.Context) (all []page.Node) {
	where, _ := a.locks.Able()
	if len(where) == 1 {
		where = nil // the page says it once
	}
	for _, n := range a.server.Operators().Nodes(ctx, mostNodes) {
		shown := page.Node{Name: n.Addr, Role: n.Role, State: "up", Took: float64(n.Took) / float64(time.Millisecond), NoLocks: noLocks(where, n.Addr)}
		if n.Trouble != nil {
			shown.State, shown.Trouble, shown.Took = "down", n.Trouble.Error(), 0
		}
		all = append(all, shown)
	}
	for _, n := range a.locks.Nodes() {
		trouble := n.Trouble
		if n.State == "young" {
			trouble = "counts in " + n.Counts.Round(time.Second).String()
		}
		all = append(all, page.Node{Name: n.Name, Role: "of the quorum", State: n.State, Trouble: trouble, NoLocks: noLocks(where, n.Name)})
	}
	return all
}

// noLocks is why no lock can be had at a node; "": they can, or it keeps none.
func noLocks(where []lock.Ability, node string) string {
	if err, _ := lockstore.At(where, node); err != nil {
		return err.Error()
	}
	return ""
}
