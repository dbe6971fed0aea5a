package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Shortest periods that still leave time for a round trip to Redis.
const (
	minWatchdogTimeout = 100 * time.Millisecond
	minWaitPoll        = 100 * time.Millisecond
	minCluster         = 100 * time.Millisecond
)

// validate reports every setting that can not work, each with its value.
func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	faults = append(faults, c.listenFaults()...)
	faults = append(faults, c.tlsFaults()...)
	faults = append(faults, c.quorumFaults()...)
	faults = append(faults, c.passwordFaults()...)
	if c.Listen.Announce != "" {
		if err := validHostPort(c.Listen.Announce); err != nil {
			fault("announce-address: %w", err)
		}
	}
	faults = append(faults, c.Admin.pageFaults()...)
	for _, d := range []struct {
		name       string
		value, min time.Duration
	}{
		{"lock-watchdog-timeout", c.Locks.WatchdogTimeout, minWatchdogTimeout},
		{"disconnect-grace", c.Locks.DisconnectGrace, 0},
		{"drain-delay", c.Drain.Delay, 0},
		{"drain-timeout", c.Drain.Timeout, 0},
		{"max-hold", c.Locks.MaxHold, 0},
		{"fence-key-ttl", c.Locks.FenceKeyTTL, 0},
		{"wait-poll", c.Locks.WaitPoll, minWaitPoll},
		{"idle-timeout", c.Limits.IdleTimeout, 0},
		{"upstream-timeout", c.Upstream.Timeout, 0},
		{"cluster-refresh", c.Cluster.Refresh, minCluster},
		{"cluster-retry", c.Cluster.Retry, minCluster},
		{"handshake-timeout", c.Limits.HandshakeTimeout, 0},
		{"slowlog-slower-than", c.Commands.Slow, 0},
	} {
		if d.value < d.min {
			fault("%s: %v is below %v", d.name, d.value, d.min)
		}
	}
	for _, n := range []struct {
		name       string
		value, min int
	}{
		{"warm-channels", c.Locks.WarmChannels, 1}, {"max-clients", c.Limits.MaxClients, 1},
		{"max-bulk", c.Limits.MaxBulk, 1}, {"max-args", c.Limits.MaxArgs, 1}, {"max-command", c.Limits.MaxCommand, 1},
		{"max-clients-per-address", c.Limits.MaxPerAddress, 0}, {"max-clients-per-user", c.Limits.User.Clients, 0},
		{"max-commands-per-user", c.Limits.User.Commands, 0}, {"max-locks-per-user", c.Limits.User.Locks, 0},
		{"max-waits-per-user", c.Limits.User.Waits, 0}, {"threads", c.Threads, 0},
		{"max-upstream-connections", c.Limits.MaxUpstream, 0}, {"max-upstream-connections-per-user", c.Limits.MaxUpstreamPerUser, 0},
	} {
		if n.value < n.min {
			fault("%s: %d is below %d", n.name, n.value, n.min)
		}
	}
	if c.Limits.MaxUpstream > 0 && c.Limits.MaxUpstreamPerUser > c.Limits.MaxUpstream {
		fault("max-upstream-connections-per-user: %d is above max-upstream-connections' %d", c.Limits.MaxUpstreamPerUser, c.Limits.MaxUpstream)
	}
	if c.Limits.MaxCommand < c.Limits.MaxBulk {
		fault("max-command: %d bytes is below max-bulk's %d", c.Limits.MaxCommand, c.Limits.MaxBulk)
	}
	for _, name := range c.Commands.Allow {
		if !slices.Contains(optional, name) {
			fault("allow: %q is not one of %s", name, strings.Join(optional, ", "))
		}
	}
	for _, name := range c.Commands.Deny {
		if strings.ContainsAny(name, " \t\r\n\"") {
			fault("deny: %q is not a command name", name)
		}
	}
	for _, name := range c.Commands.Blocking {
		if strings.ContainsAny(name, " \t\r\n\"") {
			fault("blocking-commands: %q is not a command name", name)
		}
	}
	return errors.Join(faults...)
}

// rule is a fault of the settings, if it is broken.
type rule struct {
	broken bool
	fault  string
}

// faultsOf are the faults of those that are broken.
func faultsOf(rules ...rule) (faults []error) {
	for _, r := range rules {
		if r.broken {
			faults = append(faults, errors.New(r.fault))
		}
	}
	return faults
}

func validListen(addr string) error {
	if path, isUnix := strings.CutPrefix(addr, "unix://"); isUnix {
		if !strings.HasPrefix(path, "/") {
			return fmt.Errorf("%q is not unix:// and an absolute path", addr)
		}
		return nil
	}
	return validInet(addr)
}

// validInet takes host:port, and the name of sockets that systemd has opened.
func validInet(addr string) error {
	if name, handed := strings.CutPrefix(addr, "systemd:"); handed && name != "" && !strings.ContainsAny(name, ": ") {
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
