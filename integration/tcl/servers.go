package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/internal/program"
)

const (
	slots = 16384
	// agreement is how long the nodes of a cluster may take to find each other.
	agreement = 60 * time.Second
)

// startServers starts what is to be tested: one server, or, behind lockproxy and with -nodes, a cluster. It returns
// lockproxy's --upstream for it, and what has to be stopped, also beside an error.
func (b *environment) startServers(ctx context.Context, dir string, direct bool) ([]*program.Process, string, error) {
	if direct || b.s.nodes == 0 {
		p, addr, err := b.startRedis(ctx, dir, "server")
		if err != nil {
			return nil, "", err
		}
		return []*program.Process{p}, "redis://" + addr, nil
	}
	nodes := make([]*program.Process, b.s.nodes)
	addrs, buses := make([]string, b.s.nodes), make([]string, b.s.nodes)
	var group errgroup.Group
	for i := range nodes {
		group.Go(func() (err error) {
			if buses[i], err = program.FreePort(); err != nil {
				return err
			}
			nodes[i], addrs[i], err = b.startRedis(ctx, dir, fmt.Sprint("server-", i+1), "--cluster-enabled", "yes", "--cluster-port", buses[i])
			return err
		})
	}
	err := group.Wait()
	if err == nil {
		err = join(ctx, addrs, buses)
	}
	return nodes, "redis-cluster://" + strings.Join(addrs, ","), err
}

func (b *environment) startRedis(ctx context.Context, dir, name string, more ...string) (*program.Process, string, error) {
	port, err := program.FreePort()
	if err != nil {
		return nil, "", err
	}
	data := filepath.Join(dir, "data-"+name)
	if err := os.Mkdir(data, 0o755); err != nil {
		return nil, "", err
	}
	// As the suite's authors run it as an external server.
	p, err := program.Launch(dir, name, b.suite.server, append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", data, "--daemonize", "no",
		"--save", "", "--appendonly", "no", "--enable-protected-configs", "yes", "--enable-debug-command", "yes", "--enable-module-command", "yes"}, more...)...)
	if err != nil {
		return nil, "", err
	}
	addr := net.JoinHostPort("127.0.0.1", port)
	if err := p.Ready(ctx, addr, ping); err != nil {
		p.Stop()
		return nil, "", err
	}
	return p, addr, nil
}

// join makes a cluster of empty nodes, with the slots dealt out evenly in their order.
func join(ctx context.Context, addrs, buses []string) error {
	for i, addr := range addrs {
		_, err := ask(ctx, addr, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if err == nil {
			_, err = ask(ctx, addr, "CLUSTER", "ADDSLOTSRANGE", slots*i/len(addrs), slots*(i+1)/len(addrs)-1)
		}
		if err == nil {
			_, err = ask(ctx, addrs[0], "CLUSTER", "MEET", "127.0.0.1", portOf(addr), buses[i])
		}
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, agreement)
	defer cancel()
	for _, addr := range addrs {
		for {
			info, err := redis.String(ask(ctx, addr, "CLUSTER", "INFO"))
			if err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:"+strconv.Itoa(slots)) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("no cluster came about: %s: %v: %s", addr, err, strings.Join(strings.Fields(info), " "))
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

func ask(ctx context.Context, addr, name string, args ...any) (any, error) {
	c, err := redis.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	reply, err := redis.DoContext(c, ctx, name, args...)
	if err != nil {
		return nil, fmt.Errorf("%s %v at %s: %w", name, args, addr, err)
	}
	return reply, nil
}

// portOf is the port that ends an address, or a URL of one.
func portOf(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

func stopAll(servers []*program.Process) {
	for _, p := range servers {
		if p != nil {
			p.Stop()
		}
	}
}
