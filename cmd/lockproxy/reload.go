package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/session"
	"github.com/lockproxy/lockproxy/internal/systemd"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/tlsfiles"
)

// settings are the operator's, and where they come from.
type settings struct {
	cfg    config.Config // of the start
	args   []string
	level  *slog.LevelVar
	latest *atomic.Pointer[config.Config] // what was read last and holds, as far as it may change; reloadLoop sets it
	last   *atomic.Pointer[inforce.Reload]
	steering
}

// newSettings are those that the process starts with.
func newSettings(cfg config.Config, args []string, level *slog.LevelVar, stop func()) settings {
	set := settings{cfg: cfg, args: args, level: level, latest: new(atomic.Pointer[config.Config]),
		last: new(atomic.Pointer[inforce.Reload]), steering: newSteering(stop)}
	set.keepReload(inforce.Reload{})
	return set
}

// steering is what operators ask of the process.
type steering struct {
	reloads chan chan<- inforce.Reload // to reloadLoop, which answers each
	over    chan struct{}              // closed when reloadLoop ends
	stop    func()                     // has the process drain and end
}

func newSteering(stop func()) steering {
	return steering{reloads: make(chan chan<- inforce.Reload), over: make(chan struct{}), stop: stop}
}

var errStopping = errors.New("this proxy is shutting down")

// Reload does what SIGHUP does, and says what was taken on and what needs a restart. The error says what stays as it
// was, and why, too.
func (s steering) Reload(ctx context.Context) (said string, err error) {
	answer := make(chan inforce.Reload, 1)
	select {
	case s.reloads <- answer:
		r := <-answer
		if !r.Good() {
			return "", errors.New(r.Said())
		}
		return r.Said(), nil
	case <-s.over:
		return "", errStopping
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// keepReload has the outcome of a reload shown from now on.
func (s settings) keepReload(r inforce.Reload) inforce.Reload {
	r.At = time.Now()
	good := int64(0)
	if r.Good() {
		good = 1
	}
	telemetry.ReloadGood.Set(good)
	telemetry.ReloadedAt.Set(r.At.Unix())
	s.last.Store(&r)
	return r
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
			answer <- a.reloadNow()
		case <-ctx.Done():
			return
		}
	}
}

// reloadNow is reload, and a look at the files that settings name; it tells systemd and the log of both.
func (a *app) reloadNow() (r inforce.Reload) {
	systemd.Reloading()
	defer systemd.Tell(systemd.Ready)
	var err error
	if r.Taken, r.Restart, err = a.reload(); err != nil {
		a.log.Error("the settings have been read again and are not good, the old ones stay", "error", err)
		r.Faults = append(r.Faults, "the settings are not good, the old ones stay: "+err.Error())
	}
	for _, f := range a.files {
		taken, err := f.Look()
		r.Taken = append(r.Taken, taken...)
		if err != nil {
			r.Faults = append(r.Faults, err.Error())
		}
	}
	a.events.noteEvent(events.Reload, r.Said())
	return a.keepReload(r)
}

// reload takes on what may change while the process runs, all of it or nothing, and logs what needs a restart.
func (a *app) reload() (taken, restart []string, err error) {
	now, err := config.Parse(a.args)
	if err != nil {
		return nil, nil, err
	}
	before := *a.latest.Load()
	if config.Emptied(before, now) {
		return nil, nil, fmt.Errorf("%s holds no settings any more: if that is meant, give one of them its default there, or restart", now.File.Name)
	}
	// As at the start, the limit of open files leaves room for so many clients.
	now.Limits.MaxClients, _ = places(now.Limits.MaxClients, a.cfg.Limits.MaxUpstream, openFiles(), a.log)
	if err := a.server.Change(limits(now), a.rules(now)); err != nil {
		return nil, nil, err
	}
	now.Drain = now.DrainWith(a.cfg.Admin.Metrics) // that of the start: another one needs a restart
	taken, _ = config.Changed(before, now)
	_, restart = config.Changed(a.cfg, now)
	a.latest.Store(&now)
	a.log.Info("settings read again", "changed", taken)
	if len(restart) > 0 {
		a.log.Warn("some settings have changed that need a restart", "settings", restart)
	}
	a.level.Set(now.Log.Level)
	return taken, restart, nil
}

// inForce is what is shown of the settings, and of a drain.
func (a *app) inForce() inforce.State {
	state := inforce.State{Settings: config.InForce(a.cfg, *a.latest.Load(), a.holding()), Reload: *a.last.Load()}
	state.Files, state.Drain = a.namedFiles(), a.draining()
	return state
}

// namedFiles are the files that settings name, each once.
func (a *app) namedFiles() (all []inforce.File) {
	for _, f := range a.files {
		all = append(all, f.Held()...)
	}
	slices.SortFunc(all, func(a, b inforce.File) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), -cmp.Compare(a.Trouble, b.Trouble))
	})
	return slices.CompactFunc(all, func(a, b inforce.File) bool { return a.Name == b.Name })
}

// draining is how far a drain is; nil: there is none.
func (a *app) draining() *inforce.Drain {
	d := a.drain.Load()
	if d == nil {
		return nil
	}
	return &inforce.Drain{Since: d.Since, Closes: d.Closes, Until: d.Until, Left: a.server.Left()}
}

// Level has the log say as much as that until the next reload, unless to is "", and returns how much it says then.
func (s settings) Level(to string) (now string, err error) {
	if to != "" {
		err = s.level.UnmarshalText([]byte(to))
	}
	return strings.ToLower(s.level.Level().String()), err
}

// holding are the values of settings that hold in place of those that were given: what the machine leaves room for,
// what 0 or nothing stands for, and what was set by other ways than a reload.
func (a *app) holding() map[string]string {
	now, asks := a.latest.Load(), map[bool]string{true: "required", false: "no"}
	return map[string]string{
		"max-clients":              strconv.Itoa(now.Limits.MaxClients),
		"max-upstream-connections": strconv.Itoa(a.cfg.Limits.MaxUpstream),
		"drain-delay":              now.Drain.Delay.String(),
		"log-level":                strings.ToLower(a.level.Level().String()),
		"tls-client-auth":          cmp.Or(a.cfg.TLS.ClientAuth, asks[a.cfg.AsksClients()]),
	}
}

// limits are the clients'.
func limits(cfg config.Config) session.Limits {
	l := cfg.Limits
	return session.Limits{MaxClients: l.MaxClients, MaxBulk: l.MaxBulk,
		MaxQueryMemory: l.MaxQueryMemory, MaxReplyMemory: l.MaxReplyMemory,
		NormalOutput: downstream.OutputLimit(l.NormalOutput), PubSubOutput: downstream.OutputLimit(l.PubSubOutput),
		IdleTimeout: l.IdleTimeout, HandshakeTimeout: l.HandshakeTimeout, Protected: cfg.Listen.ProtectedMode == "yes",
		LocksPerUser: l.LocksPerUser}
}

// rules are what the operator says of commands.
func (a *app) rules(cfg config.Config) session.CommandRules {
	return session.CommandRules{Allow: cfg.Commands.Allow, Deny: cfg.Commands.Deny, Blocking: cfg.Commands.Blocking, Fatal: a.mistaken,
		Operators: cfg.Commands.Operators}
}

// checkStart says which settings the start would refuse.
func checkStart(cfg config.Config) (err error) {
	if cfg.Upstream.URL.Embedded() {
		return loopbackOnly(cfg)
	}
	_, err = addressMap(cfg) // which is read before a cluster only
	return err
}

// checkFiles reads the files that the settings name, and looks whether what is to be written can be.
func checkFiles(cfg config.Config) error {
	passwords := func(file string) tlsfiles.Names { return tlsfiles.Names{Password: file} }
	faults := []error{tryEvents(cfg.Log.Events)}
	if _, err := groupID(cfg.Listen.UnixGroup); err != nil {
		faults = append(faults, fmt.Errorf("unix-socket-group: %w", err))
	}
	for _, read := range []struct {
		what  string
		names tlsfiles.Names
	}{
		{"tls-listen", tlsfiles.Names{Certs: cfg.TLS.Certs, Keys: cfg.TLS.Keys, CA: cfg.TLS.ClientCA}},
		{"upstream-tls", upstreamFiles(cfg)},
		{"admin-token-file", tokenFile(cfg.Admin.TokenFile)},
		{"admin-view-token-file", tokenFile(cfg.Admin.ViewTokenFile)},
		{"admin-tls", pageFiles(cfg)},
		{"tls-auth-user-passwords", tlsfiles.Names{Users: cfg.TLS.UserPasswords}},
		{"password file", passwords(cfg.Upstream.PasswordFile)},
		{"password file", passwords(cfg.Upstream.SentinelPasswordFile)},
		{"password file", passwords(cfg.Quorum.PasswordFile)},
		{"password file", passwords(cfg.Locks.PasswordFile)},
	} {
		if _, err := tlsfiles.Open(read.names, slog.Default()); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", read.what, err))
		}
	}
	return errors.Join(faults...)
}
