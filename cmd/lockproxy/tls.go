package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/systemd"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/tlsfiles"
	"github.com/lockproxy/lockproxy/upstream"
)

// listener is an address that is open, and what its clients go through first.
type listener struct {
	net.Listener
	entry downstream.Entry
}

// open opens all addresses; those of --tls-listen with TLS.
func (a *app) open(ctx context.Context) error {
	plain := downstream.Entry{ProxyHeader: a.cfg.Listen.ProxyProtocol == "required", ProxyFrom: a.cfg.Listen.ProxyFrom}
	secure := plain
	if len(a.cfg.TLS.Listen) > 0 {
		files, err := a.keepFresh(tlsfiles.Names{Certs: a.cfg.TLS.Certs, Keys: a.cfg.TLS.Keys, CA: a.cfg.TLS.ClientCA})
		if err != nil {
			return fmt.Errorf("tls-listen: %w", err)
		}
		secure.TLS = files.Server(a.clientAuth())
	}
	handed, err := systemd.Handed()
	if err != nil {
		return err
	}
	defer handed.Close()
	for _, address := range a.cfg.Listen.Addresses {
		if err := a.openListener(ctx, address, handed, plain); err != nil {
			return err
		}
	}
	for _, address := range a.cfg.TLS.Listen {
		if err := a.openListener(ctx, address, handed, secure); err != nil {
			return err
		}
	}
	if unused := handed.Names(); len(unused) > 0 {
		a.log.Warn("sockets that systemd has opened are not used: listen and tls-listen do not name them", "names", unused)
	}
	return nil
}

// openListener opens an address, or takes those that systemd has opened.
func (a *app) openListener(ctx context.Context, address string, handed systemd.Sockets, e downstream.Entry) error {
	if strings.HasPrefix(address, systemd.Prefix) {
		opened, err := handed.Take(address)
		for _, ln := range opened {
			a.listeners = append(a.listeners, listener{ln, e})
		}
		return err
	}
	ln, err := listen(ctx, tcpSockets(a.shares()), address, a.cfg.Listen)
	if err == nil {
		a.listeners = append(a.listeners, listener{ln, e})
	}
	return err
}

func (a *app) clientAuth() tls.ClientAuthType {
	switch {
	case !a.cfg.AsksClients():
		return tls.NoClientCert
	case a.cfg.TLS.ClientAuth == "optional":
		return tls.VerifyClientCertIfGiven
	}
	return tls.RequireAndVerifyClientCert
}

// secureUpstream gives the connections to Redis the password that is in a file, "" is none, and those to a rediss://
// upstream what --upstream-tls-… say.
func (a *app) secureUpstream(t *upstream.Target, password string) error {
	if err := a.secret(&t.Secret, password); err != nil {
		return err
	}
	if file := a.cfg.Upstream.SentinelPasswordFile; file != "" && t.Sentinels != nil {
		known := *t.Sentinels
		if err := a.secret(&known.Secret, file); err != nil {
			return err
		}
		t.Sentinels = &known
	}
	if t.TLS == nil {
		return nil
	}
	if name := a.cfg.Upstream.TLSServerName; name != "" {
		t.TLS.ServerName = name
	}
	names := upstreamFiles(a.cfg)
	if names.CA == "" && names.Certs == nil {
		return nil
	}
	files, err := a.keepFresh(names)
	if err != nil {
		return fmt.Errorf("upstream-tls: %w", err)
	}
	t.Files = files
	return nil
}

// secret reads a file with a password, "" is none.
func (a *app) secret(to *upstream.Secret, file string) error {
	if file == "" {
		return nil
	}
	files, err := a.keepFresh(tlsfiles.Names{Password: file})
	if err != nil {
		return fmt.Errorf("password file: %w", err)
	}
	*to = files
	return nil
}

// certificateUsers are the passwords of the users whom certificates name; nil: they name nobody.
func (a *app) certificateUsers() (func(name string) (password string, known bool), error) {
	if a.cfg.TLS.UserPasswords == "" {
		return nil, nil
	}
	files, err := a.keepFresh(tlsfiles.Names{Users: a.cfg.TLS.UserPasswords})
	if err != nil {
		return nil, fmt.Errorf("tls-auth-user-passwords: %w", err)
	}
	return func(name string) (string, bool) {
		password, known := files.Now().Users[name]
		return password, known
	}, nil
}

// upstreamFiles are the files for connections to Redis.
func upstreamFiles(cfg config.Config) tlsfiles.Names {
	names := tlsfiles.Names{CA: cfg.Upstream.TLSCA}
	if cfg.Upstream.TLSCert != "" {
		names.Certs, names.Keys = []string{cfg.Upstream.TLSCert}, []string{cfg.Upstream.TLSKey}
	}
	return names
}

// keepFresh reads files that run is to have watched.
func (a *app) keepFresh(n tlsfiles.Names) (*tlsfiles.Files, error) {
	f, err := tlsfiles.Open(n, a.log)
	if err == nil {
		f.Told = func(what string) { a.events.noteEvent(events.Rotation, what) }
		a.files = append(a.files, f)
	}
	return f, err
}

// readEnds shows the ends of certificates, by file.
func (a *app) readEnds(show telemetry.Show) {
	for _, f := range a.namedFiles() {
		if f.Ends != nil {
			show(f.Ends.Unix(), f.Name)
		}
	}
}

// readUnusable shows which files cannot be used as they are now.
func (a *app) readUnusable(show telemetry.Show) {
	for _, f := range a.namedFiles() {
		unusable := int64(0)
		if f.Trouble != "" {
			unusable = 1
		}
		show(unusable, f.Name)
	}
}
