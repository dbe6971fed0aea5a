package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
)

// tcpSockets opens TCP addresses; with reuse also one on which another process listens already.
func tcpSockets(reuse bool) (c net.ListenConfig) {
	if reuse {
		c.Control = reusePort
	}
	return c
}

// listen opens one address of --listen, host:port or unix:///path.
func listen(ctx context.Context, sockets net.ListenConfig, address string, set config.Listen) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix://")
	if !isUnix {
		return sockets.Listen(ctx, "tcp", address)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := share(path, set.UnixGroup, set.UnixMode); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// share gives the socket at path to a group, "" is none, and then those permissions, 0 is none.
func share(path, name string, mode fs.FileMode) error {
	id, err := groupID(name)
	if err == nil && name != "" {
		err = os.Chown(path, -1, id)
	}
	if err != nil {
		return fmt.Errorf("unix-socket-group: %w", err)
	}
	if mode == 0 {
		return nil
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("unix-socket-mode: %w", err)
	}
	return nil
}

// groupID is the number of a group, which may be given by it; 0 for "".
func groupID(name string) (id int, err error) {
	if name == "" {
		return 0, nil
	}
	if id, err = strconv.Atoi(name); err == nil {
		return id, nil
	}
	group, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(group.Gid) // a number where there are unix sockets
}

var errTaken = errors.New("another process listens there")

// openSocket opens the admin socket, unless another process has it, with which this one takes turns.
func (a *app) openSocket() (err error) {
	if a.cfg.Admin.Socket == "" {
		return nil
	}
	if a.socket, err = adminSocket(a.cfg.Admin.Socket); errors.Is(err, errTaken) && a.shares() {
		a.log.Info("the admin socket is another process', and will be this one's when that has ended", "path", a.cfg.Admin.Socket)
		return nil
	}
	return err
}

func adminSocket(path string) (ln net.Listener, err error) {
	if err = removeStale(path); err == nil {
		ln, err = listenPrivately(path)
	}
	if err != nil {
		return nil, fmt.Errorf("admin-socket: %w", err)
	}
	return ln, nil
}

// socketTurn is how often it is looked whether the admin socket is free.
const socketTurn = time.Second

// serveSocket serves the admin socket, once it is this process' turn, until the end of a drain.
func (a *app) serveSocket(ctx context.Context, ln net.Listener, failed chan<- error) {
	for ln == nil {
		retry.Sleep(ctx, socketTurn, nil)
		if ctx.Err() != nil {
			return
		}
		ln, _ = adminSocket(a.cfg.Admin.Socket) // until it can be had
	}
	a.serve(listener{ln, downstream.Entry{Operators: true}}, failed)
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
		return fmt.Errorf("%s: %w", path, errTaken)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// loopbackOnly refuses to show the embedded store, which knows no passwords, to a network, unless protected mode is off.
func loopbackOnly(cfg config.Config) error {
	if cfg.Listen.ProtectedMode == "no" {
		return nil
	}
	for _, address := range slices.Concat(cfg.Listen.Addresses, cfg.TLS.Listen) {
		if strings.HasPrefix(address, "unix://") {
			continue
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		if !config.Loopback(host) {
			return fmt.Errorf("listen %s: the embedded store is for trying out and listens on loopback only; name your Redis with --upstream, or say --protected-mode no",
				address)
		}
	}
	return nil
}
