package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// validate reports every setting that can not work with the others. What can not work by itself its row refuses.
func (c Config) validate() []error {
	faults := slices.Concat(c.listenFaults(), c.dependenceFaults(), c.quorumFaults())
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(c.TLS.Certs) != len(c.TLS.Keys) {
		fault("tls-key: there must be as many as tls-cert")
	}
	if most := c.Limits.MaxUpstream; most > 0 && c.Limits.MaxUpstreamPerUser > most {
		fault("max-upstream-connections-per-user: %d is above max-upstream-connections' %d", c.Limits.MaxUpstreamPerUser, most)
	}
	if c.Limits.MaxCommand < c.Limits.MaxBulk {
		fault("max-command: %d bytes is below max-bulk's %d", c.Limits.MaxCommand, c.Limits.MaxBulk)
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
