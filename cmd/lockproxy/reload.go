package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/session"
	"github.com/lockproxy/lockproxy/internal/systemd"
	"github.com/lockproxy/lockproxy/internal/tlsfiles"
)

// settings are the operator's, and where they come from.
type settings struct {
	cfg    config.Config // of the start
	args   []string
	level  *slog.LevelVar
	latest config.Config                 // what was read last and holds, as far as it may change; reloadLoop has it
	drain  *atomic.Pointer[config.Drain] // in force
	steering
}

// steering is what operators ask of the process.
type steering struct {
	reloads chan chan<- reloaded // to reloadLoop, which answers each
	over    chan struct{}        // closed when reloadLoop ends
	stop    func()               // has the process drain and end
}

func newSteering(stop func()) steering {
	return steering{reloads: make(chan chan<- reloaded), over: make(chan struct{}), stop: stop}
}

var errStopping = errors.New("this proxy is shutting down")

// Reload does what SIGHUP does, and says what was taken on and what needs a restart. The error says what stays as it
// was, and why, too.
func (s steering) Reload(ctx context.Context) (said string, err error) {
	answer := make(chan reloaded, 1)
	select {
	case s.reloads <- answer:
		return (<-answer).said()
	case <-s.over:
		return "", errStopping
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// reloaded is what became of settings and files that were read again.
type reloaded struct {
	taken   []string // settings and files
	restart []string // settings that are another since the start, and need a restart
	faults  []error  // of what stays as it was
}

// said is OK, or an error if something stays as it was, with what is not so.
func (r reloaded) said() (string, error) {
	text, err := "OK", errors.Join(r.faults...)
	if err != nil {
		text = err.Error()
	}
	if len(r.taken) > 0 {
		text += "; taken: " + strings.Join(r.taken, ", ")
	}
	if len(r.restart) > 0 {
		text += "; a restart is needed for: " + strings.Join(r.restart, ", ")
	}
	if err != nil {
		return "", errors.New(text)
	}
	return text, nil
}

// hangups returns where each SIGHUP comes from now on.
func hangups() chan os.Signal {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	return hangup
}

// reloadLoop reads the settings again at each SIGHUP, and when an operator asks for it, until ctx ends.
func (a *app) reloadLoop(ctx context.Context, hangup chan os.Signal) {
	defer close(a.over)
	defer signal.Stop(hangup)
	for {
		select {
		case <-hangup:
			a.reloadNow() // the log says it
		case answer := <-a.reloads:
			r := a.reloadNow()
			for _, f := range a.files { // at a SIGHUP they look by themselves
				taken, err := f.Look()
				r.taken = append(r.taken, taken...)
				if err != nil {
					r.faults = append(r.faults, err)
				}
			}
			answer <- r
		case <-ctx.Done():
			return
		}
	}
}

// reloadNow is reload, and tells systemd and the log of it.
func (a *app) reloadNow() (r reloaded) {
	systemd.Reloading()
	defer systemd.Tell(systemd.Ready)
	taken, restart, err := a.reload()
	if err != nil {
		a.log.Error("the settings have been read again and are not good, the old ones stay", "error", err)
		return reloaded{faults: []error{fmt.Errorf("the settings are not good, the old ones stay: %w", err)}}
	}
	return reloaded{taken: taken, restart: restart}
}

// reload takes on what may change while the process runs, all of it or nothing, and logs what needs a restart.
func (a *app) reload() (taken, restart []string, err error) {
	now, err := config.Parse(a.args)
	if err != nil {
		return nil, nil, err
	}
	if config.Emptied(a.latest, now) {
		return nil, nil, fmt.Errorf("%s holds no settings any more: if that is meant, give one of them its default there, or restart", now.File.Name)
	}
	// As at the start, the limit of open files leaves room for so many clients.
	now.Limits.MaxClients, _ = places(now.Limits.MaxClients, a.cfg.Limits.MaxUpstream, openFiles(), a.log)
	if err := a.server.Change(limits(now), a.rules(now)); err != nil {
		return nil, nil, err
	}
	now.Drain = now.DrainWith(a.cfg.Admin.Metrics) // that of the start: another one needs a restart
	a.drain.Store(&now.Drain)
	taken, _ = config.Changed(a.latest, now)
	_, restart = config.Changed(a.cfg, now)
	a.latest = now
	a.log.Info("settings read again", "changed", taken)
	if len(restart) > 0 {
		a.log.Warn("some settings have changed that need a restart", "settings", restart)
	}
	a.level.Set(now.Log.Level)
	return taken, restart, nil
}

// limits are the clients'.
func limits(cfg config.Config) session.Limits {
	l := cfg.Limits
	return session.Limits{MaxClients: l.MaxClients, MaxPerAddress: l.MaxPerAddress, MaxBulk: l.MaxBulk, MaxArgs: l.MaxArgs, MaxCommand: l.MaxCommand,
		MaxQueryMemory: l.MaxQueryMemory, MaxReplyMemory: l.MaxReplyMemory,
		NormalOutput: downstream.OutputLimit(l.NormalOutput), PubSubOutput: downstream.OutputLimit(l.PubSubOutput),
		IdleTimeout: l.IdleTimeout, HandshakeTimeout: l.HandshakeTimeout, Protected: cfg.Listen.ProtectedMode == "yes",
		PerUser: session.UserLimits(l.User)}
}

// rules are what the operator says of commands.
func (a *app) rules(cfg config.Config) session.CommandRules {
	return session.CommandRules{Allow: cfg.Commands.Allow, Deny: cfg.Commands.Deny, Blocking: cfg.Commands.Blocking, Fatal: a.mistaken,
		Operators: cfg.Commands.Operators, Slow: cfg.Commands.Slow}
}

// checkStart says which settings the start would refuse.
func checkStart(cfg config.Config) (err error) {
	if cfg.Upstream.URL.Embedded() {
		return loopbackOnly(cfg)
	}
	if _, sharded := cfg.Upstream.URL.Cluster(); sharded {
		_, err = addressMap(cfg)
	}
	return err
}

// checkFiles reads the files that the settings name.
func checkFiles(cfg config.Config) error {
	passwords := func(file string) tlsfiles.Names { return tlsfiles.Names{Password: file} }
	var faults []error
	for _, read := range []struct {
		what  string
		names tlsfiles.Names
	}{
		{"tls-listen", tlsfiles.Names{Certs: cfg.TLS.Certs, Keys: cfg.TLS.Keys, CA: cfg.TLS.ClientCA}},
		{"upstream-tls", upstreamFiles(cfg)},
		{"admin-token-file", tokenFile(cfg)},
		{"admin-tls", pageFiles(cfg)},
		{"tls-auth-user-passwords", tlsfiles.Names{Users: cfg.TLS.UserPasswords}},
		{"password file", passwords(cfg.Upstream.PasswordFile)},
		{"password file", passwords(cfg.Upstream.SentinelPasswordFile)},
		{"password file", passwords(cfg.Quorum.PasswordFile)},
	} {
		if _, err := tlsfiles.Open(read.names, slog.Default()); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", read.what, err))
		}
	}
	return errors.Join(faults...)
}
