package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// validate reports every setting that can not work with the others. What can not work by itself its row refuses.
func (c Config) validate() []error {
	faults := slices.Concat(c.listenFaults(), c.dependenceFaults(), c.quorumFaults())
	if len(c.TLS.Certs) != len(c.TLS.Keys) {
		faults = append(faults, errors.New("tls-key: there must be as many as tls-cert"))
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
