package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/lockproxy/lockproxy/internal/admin"
	"github.com/lockproxy/lockproxy/internal/embedded"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/loglimit"
	"github.com/lockproxy/lockproxy/internal/logqueue"
	"github.com/lockproxy/lockproxy/internal/page"
	"github.com/lockproxy/lockproxy/internal/proxies"
	"github.com/lockproxy/lockproxy/internal/session"
	"github.com/lockproxy/lockproxy/internal/systemd"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/tlsfiles"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	telemetryFlush = 3 * time.Second // for the last figures at the end
	lastReleases   = 3 * time.Second // for locks being given back when a drain is over; a Redis that hangs would keep them for ever
	exportFailures = 2               // that are logged in a while: of a collector that is away each batch fails
	findOther      = time.Second     // for another process of this machine to let a connection in
)

// app is the whole proxy: built from the bottom up, stopped from the top down.
type app struct {
	settings
	log    *slog.Logger
	budget *upstream.Budget // of the connections to Redis that clients cause
	observed
	store     *embedded.Store // nil with a Redis of the user's
	upstream  redisAt
	apart     redisAt             // keeps the locks alone; zero: upstream keeps them, or quorum
	node      *upstream.Node      // of upstream; nil with a cluster
	quorum    []quorum.Node       // none: upstream or apart keeps the locks
	addresses []*upstream.Address // that are watched
	locks     *lock.Manager
	server    *session.Server
	listeners []listener
	socket    net.Listener // for operators; nil: there is none, or another process has it
	files     []*tlsfiles.Files
	drain     atomic.Pointer[inforce.Drain] // nil: it does not drain
	mistake   chan error                    // in the settings, found once Redis was asked
}

// observed is what is known of the process outside.
type observed struct {
	uuid      string // of this proxy
	proxies   *proxies.Exchange
	events    eventLog
	telemetry *telemetry.Telemetry
	health    admin.Health
	page      *page.Page // nil: there is none
}

// newApp builds all of it and opens the listeners; nothing runs yet but the embedded store.
func newApp(ctx context.Context, set settings, log *slog.Logger) (*app, error) {
	cfg := set.cfg
	a := &app{settings: set, log: log, observed: observed{uuid: uuid.NewString()}, mistake: make(chan error, 1)}
	a.cfg.Limits.MaxClients, a.cfg.Limits.MaxUpstream = places(cfg.Limits.MaxClients, cfg.Limits.MaxUpstream, openFiles(), log)
	a.latest.Store(new(a.cfg))
	a.budget = upstream.NewBudget(a.cfg.Limits.MaxUpstream, 0)
	if err := a.build(ctx); err != nil {
		a.closeAll()
		return nil, err
	}
	return a, nil
}

func (a *app) build(ctx context.Context) (err error) {
	cfg, log := a.cfg, a.log
	if a.events, err = openEvents(cfg.Log, log); err != nil {
		return err
	}
	if a.telemetry, err = telemetry.Start(ctx, telemetry.Options{
		ServiceVersion: version, MetricsListen: cfg.Admin.Metrics, Sockets: tcpSockets(a.shares()), Later: a.shares(), Handlers: a.health.Handlers(), Logger: loglimit.Most(log, exportFailures),
	}); err != nil {
		return err
	}
	url := cfg.Upstream.URL
	if url.Embedded() {
		if err = loopbackOnly(cfg); err != nil {
			return err
		}
		if a.store, err = embedded.Start(log); err != nil {
			return err
		}
		if url, err = upstream.ParseURL("redis://" + a.store.Addr()); err != nil {
			return err
		}
	}
	service, err := a.connectUpstream(ctx, url)
	if err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	if err = a.openLocks(ctx); err != nil {
		return fmt.Errorf("locks: %w", err)
	}
	certified, err := a.certificateUsers()
	if err != nil {
		return err
	}
	a.openProxies()
	a.server = session.NewServer(session.ServerOptions{
		Upstream: session.Upstream{Node: a.node, Cluster: a.upstream.cluster, Locks: a.locks, Proxies: a.proxies, Budget: a.budget, Service: service,
			Embedded: a.store != nil},
		Limits: limits(cfg), CommandRules: a.rules(cfg),
		Appearance:      session.Appearance{Version: version, Present: cfg.Listen.Present == "cluster", Announce: cfg.Listen.Announce},
		Steering:        session.Steering{Reload: a.Reload, Drain: a.stop, InForce: a.inForce, Level: a.Level},
		UpstreamTimeout: cfg.Upstream.Timeout, CertificateUser: certified, Logger: log, Events: a.events.Log,
	})
	if err = a.open(ctx); err != nil {
		return err
	}
	if err = a.openSocket(); err != nil {
		return err
	}
	a.health.Serve(a.checks(service)...)
	if a.shares() { // only now, or /readyz of a host where another process serves would be "starting"
		if err = a.telemetry.Listen(ctx); err != nil {
			return err
		}
	}
	if err = a.openPage(ctx); err != nil {
		return err
	}
	figures := a.server.Figures()
	figures[telemetry.CertificateEnd], figures[telemetry.FileUnusable] = a.readEnds, a.readUnusable
	figures[telemetry.LinesDropped] = telemetry.Number(logqueue.Dropped.Load)
	telemetry.Publish(figures)
	return nil
}

// shares says whether other processes may listen at the same addresses.
func (a *app) shares() bool { return a.cfg.Listen.ReusePort == "yes" }

// stopAdmitting says that no new clients should come. Where a process may have come in place of this one, that one alone is
// asked from now on.
func (a *app) stopAdmitting() {
	if a.shares() {
		a.telemetry.Unlisten()
		a.unlistenPage()
	}
	a.health.Drain()
}

// replaced says whether another process serves in place of this one, which has left: one that serves answers at
// metrics-listen.
func (a *app) replaced() bool {
	if !a.shares() || a.cfg.Admin.Metrics == "" {
		return false
	}
	conn, err := net.DialTimeout("tcp", a.cfg.Admin.Metrics, findOther)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// lockOptions are the lock engine's settings, wherever the locks are.
func (a *app) lockOptions() lock.ManagerOptions {
	set := a.cfg.Locks
	return lock.ManagerOptions{
		Watchdog: set.WatchdogTimeout, Poll: set.WaitPoll, MaxHold: set.MaxHold,
		Reentry: lock.Reentry(set.ImplicitReentry),
		Logger:  a.log, Events: a.events.Log, UUID: a.uuid,
	}
}

// run serves until ctx ends, then drains.
func (a *app) run(ctx context.Context) error {
	var engine, serving sync.WaitGroup
	lockCtx, endLocks := context.WithCancel(context.Background())
	defer endLocks()
	reloads, endReloads := context.WithCancel(ctx)
	defer endReloads()
	// A SIGHUP is heard before anybody is told that the process serves.
	hangup := hangups()
	engine.Go(func() { a.reloadLoop(reloads, hangup) })
	for _, f := range a.files {
		engine.Go(func() { f.Watch(lockCtx) })
	}
	systemd.Tell(systemd.Ready) // the listeners are open
	a.events.noteEvent(events.Start, version)
	engine.Go(func() { a.runLocks(lockCtx) })
	engine.Go(func() { a.proxies.Run(lockCtx) })
	engine.Go(func() {
		a.health.Beat(lockCtx, systemd.AliveEvery(), a.lookStuck, func() { systemd.Tell(systemd.Alive) })
	})
	failed := make(chan error, len(a.listeners)+1)
	if a.cfg.Admin.Socket != "" {
		serving.Go(func() { a.serveSocket(reloads, a.socket, failed) })
	}
	for _, l := range a.listeners {
		serving.Go(func() { a.serve(l, failed) })
	}
	if a.cfg.Listen.Attached == "yes" {
		printAddresses(os.Stdout, a.listeners)
	}
	err := a.untilEnd(ctx, failed)
	a.stopAdmitting() // also when it ends by an error: it may have to wait for those that hold locks
	endReloads()
	systemd.Tell(systemd.Stopping)
	drainCtx, cancel := context.WithTimeout(context.Background(), a.latest.Load().Drain.Timeout)
	defer cancel()
	if drainErr := a.server.Shutdown(drainCtx); drainErr != nil {
		a.log.Warn("not all clients came to rest in time: they are closed, and locks that they hold expire", "error", drainErr)
		a.events.noteEvent(events.Drain, drainErr.Error())
	}
	a.listeners = nil // Shutdown has closed them
	endLocks()
	defer time.AfterFunc(lastReleases, a.abortLocks).Stop()
	engine.Wait()
	a.closeAll()
	serving.Wait()
	return err
}

// untilEnd waits for the end of ctx, and then, unless another process serves, for as long as it takes everybody to hear
// that no new clients should come; or for what ends the process before.
func (a *app) untilEnd(ctx context.Context, failed <-chan error) error {
	select {
	case <-ctx.Done():
	case err := <-failed:
		return err
	case err := <-a.mistake:
		return err
	}
	a.stopAdmitting()
	drain := a.latest.Load().Drain
	if a.replaced() {
		drain.Delay = 0 // nobody would hear of it: the other process says that the host is ready
	}
	closes := time.Now().Add(drain.Delay)
	a.drain.Store(&inforce.Drain{Since: time.Now(), Closes: closes, Until: closes.Add(drain.Timeout)})
	a.log.Info("draining", "delay", drain.Delay, "timeout", drain.Timeout)
	a.events.noteEvent(events.Drain, "it begins")
	delay := time.NewTimer(drain.Delay)
	defer delay.Stop()
	select {
	case <-delay.C:
		return nil
	case err := <-failed:
		return err
	}
}

func (a *app) runLocks(ctx context.Context) {
	if err := a.locks.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		a.log.Error("the lock engine ended", "error", err)
	}
}

func (a *app) serve(l listener, failed chan<- error) {
	a.log.Info("serving", "listen", l.Addr().String(), "tls", l.entry.TLS != nil, "upstream", a.cfg.Upstream.URL.String(), "version", version)
	if err := a.server.Serve(l.Listener, l.entry); err != nil {
		failed <- fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
}

// closeAll stops what has been started, from the top down; the server has been shut down before.
func (a *app) closeAll() {
	a.closePage()
	for _, l := range a.listeners {
		l.Close()
	}
	if a.socket != nil {
		a.socket.Close()
	}
	a.closeControls()
	if a.node != nil {
		a.node.Close()
	}
	a.upstream.close()
	a.apart.close()
	for _, address := range a.addresses {
		address.Close()
	}
	if a.store != nil {
		a.store.Close()
	}
	if a.telemetry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), telemetryFlush)
		defer cancel()
		if err := a.telemetry.Shutdown(ctx); err != nil {
			a.log.Warn("the last metrics were not delivered", "error", err)
		}
	}
	a.events.closeFile()
}

// mistaken ends the process for a mistake in the settings.
func (a *app) mistaken(err error) {
	select {
	case a.mistake <- err:
	default:
	}
}
