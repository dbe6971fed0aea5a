package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Shortest periods that still leave time for a round trip to Redis.
const (
	minWatchdogTimeout = 100 * time.Millisecond
	minWaitPoll        = 100 * time.Millisecond
)

// Validate reports every setting that can not work, each with its value.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	if !validUpstream(c.Upstream) {
		fault("upstream: not a redis://, rediss:// or unix:// URL (not shown, it may hold a password)")
	}
	faults = append(faults, c.listenFaults()...)
	faults = append(faults, c.tlsFaults()...)
	if c.MetricsListen != "" {
		if err := validHostPort(c.MetricsListen); err != nil {
			fault("metrics-listen: %w", err)
		}
	}
	for _, d := range []struct {
		name       string
		value, min time.Duration
	}{
		{"lock-watchdog-timeout", c.LockWatchdogTimeout, minWatchdogTimeout},
		{"disconnect-grace", c.DisconnectGrace, 0},
		{"drain-timeout", c.DrainTimeout, 0},
		{"max-hold", c.MaxHold, 0},
		{"fence-key-ttl", c.FenceKeyTTL, 0},
		{"wait-poll", c.WaitPoll, minWaitPoll},
		{"idle-timeout", c.IdleTimeout, 0},
		{"handshake-timeout", c.HandshakeTimeout, 0},
	} {
		if d.value < d.min {
			fault("%s: %v is below %v", d.name, d.value, d.min)
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"warm-channels", c.WarmChannels}, {"max-clients", c.MaxClients},
		{"max-bulk", c.MaxBulk}, {"max-args", c.MaxArgs}, {"max-command", c.MaxCommand},
	} {
		if n.value < 1 {
			fault("%s: %d is below 1", n.name, n.value)
		}
	}
	if c.MaxPerAddress < 0 {
		fault("max-clients-per-address: %d is below 0", c.MaxPerAddress)
	}
	if c.Threads < 0 {
		fault("threads: %d is below 0", c.Threads)
	}
	if c.MaxCommand < c.MaxBulk {
		fault("max-command: %d bytes is below max-bulk's %d", c.MaxCommand, c.MaxBulk)
	}
	for _, name := range c.Allow {
		if !slices.Contains(Optional, name) {
			fault("allow: %q is not one of %s", name, strings.Join(Optional, ", "))
		}
	}
	for _, name := range c.Deny {
		if strings.ContainsAny(name, " \t\r\n\"") {
			fault("deny: %q is not a command name", name)
		}
	}
	return errors.Join(faults...)
}

// validUpstream looks at the form only; package upstream reads the parts.
func validUpstream(raw string) bool {
	if raw == "" {
		return true
	}
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "redis", "rediss":
		return u.Hostname() != ""
	case "unix":
		return u.Host == "" && u.Path != ""
	}
	return false
}

func validListen(addr string) error {
	if path, isUnix := strings.CutPrefix(addr, "unix://"); isUnix {
		if !strings.HasPrefix(path, "/") {
			return fmt.Errorf("%q is not unix:// and an absolute path", addr)
		}
		return nil
	}
	return validHostPort(addr)
}

func validHostPort(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not host:port", addr)
	}
	return nil
}
