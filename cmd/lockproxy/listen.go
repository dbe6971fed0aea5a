package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/systemd"
)

// tcpSockets opens TCP addresses; with reuse also one on which another process listens already.
func tcpSockets(reuse bool) (c net.ListenConfig) {
	if reuse {
		c.Control = reusePort
	}
	return c
}

// listen opens one address of --listen, host:port or unix:///path.
func listen(ctx context.Context, sockets net.ListenConfig, address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix://")
	if !isUnix {
		return sockets.Listen(ctx, "tcp", address)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// removeStale takes away the socket of a process that has died; one that somebody answers on stays.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%s: another process listens there", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// loopbackOnly refuses to show the embedded store, which knows no passwords, to a network.
func loopbackOnly(addresses []string) error {
	for _, address := range addresses {
		if strings.HasPrefix(address, "unix://") {
			continue
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		if !config.Loopback(host) {
			return fmt.Errorf("listen %s: the embedded store is for trying out and listens on loopback only; name your Redis with --upstream",
				address)
		}
	}
	return nil
}

// clientName is what this proxy calls its own connections to Redis: others learn from CLIENT LIST who has that uuid, and where it is found. An
// address that is not known yet, or that no name may have, is left out.
func clientName(uuid string, cfg config.Config) string {
	const name = "lockproxy:"
	for _, address := range slices.Concat([]string{cfg.Listen.Announce}, cfg.TLS.Listen, cfg.Listen.Addresses) {
		odd := strings.ContainsFunc(address, func(r rune) bool { return r < '!' || r > '~' })
		if address != "" && !odd && !strings.HasPrefix(address, systemd.Prefix) {
			return name + uuid + ":" + address
		}
	}
	return name + uuid
}
