package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lockproxy/lockproxy/internal/program"
)

// The rows, in the order each round measures them.
const (
	direct    = "direct"
	twemproxy = "twemproxy"
	byteRelay = "byte relay"
	lockproxy = "lockproxy"
)

// target is one row of the tables: a way to Redis.
type target struct {
	name    string
	addr    string
	proxy   *program.Process // nil for direct
	problem string           // why it could not be started, "" if it was
}

// environment is every server of one run.
type environment struct {
	redis     *program.Process
	redisAddr string
	targets   []*target
}

// startEnvironment starts Redis and, if asked, all the ways to it. Only Redis and redis-benchmark
// are a must; another that cannot start becomes a row that says why.
func startEnvironment(ctx context.Context, dir string, proxies bool) (*environment, error) {
	for _, program := range []string{"redis-server", "redis-benchmark"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%s is not installed", program)
		}
	}
	addr, err := program.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	redis, err := program.Launch(dir, "redis-server", "redis-server",
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no")
	if err != nil {
		return nil, err
	}
	b := &environment{redis: redis, redisAddr: addr, targets: []*target{{name: direct, addr: addr}}}
	if err := redis.Ready(ctx, addr, tryGet); err != nil {
		b.stop()
		return nil, err
	}
	if !proxies {
		return b, nil
	}
	starters := []struct {
		name  string
		start func(ctx context.Context, dir, listen, redis string) (*program.Process, error)
	}{{twemproxy, startTwemproxy}, {byteRelay, startRelay}, {lockproxy, startLockproxy}}
	for _, s := range starters {
		b.add(ctx, dir, s.name, s.start)
		if ctx.Err() != nil {
			b.stop()
			return nil, ctx.Err()
		}
	}
	return b, nil
}

func (b *environment) add(ctx context.Context, dir, name string, start func(ctx context.Context, dir, listen, redis string) (*program.Process, error)) {
	t := &target{name: name}
	b.targets = append(b.targets, t)
	var err error
	if t.addr, err = program.FreeAddr(); err == nil {
		t.proxy, err = start(ctx, dir, t.addr, b.redisAddr)
	}
	if err == nil {
		err = t.proxy.Ready(ctx, t.addr, tryGet)
	}
	if err != nil {
		t.problem = err.Error()
		progress("%s: %s", name, t.problem)
	}
}

// stop ends every server, Redis last.
func (b *environment) stop() {
	for _, t := range b.targets {
		if t.proxy != nil {
			t.proxy.Stop()
		}
	}
	b.redis.Stop()
}

// target returns the row of that name.
func (b *environment) target(name string) *target {
	for _, t := range b.targets {
		if t.name == name {
			return t
		}
	}
	panic("no row " + name)
}

func startTwemproxy(_ context.Context, dir, listen, redis string) (*program.Process, error) {
	nutcracker, err := exec.LookPath("nutcracker")
	if err != nil {
		return nil, errors.New("not installed")
	}
	conf := fmt.Sprintf(`bench:
  listen: %s
  hash: fnv1a_64
  distribution: modula
  redis: true
  auto_eject_hosts: false
  preconnect: true
  servers:
    - %s:1
`, listen, redis)
	file := filepath.Join(dir, "nutcracker.yml")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	stats, err := program.FreeAddr()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(stats)
	return program.Launch(dir, twemproxy, nutcracker, "-c", file, "-a", host, "-s", port,
		"-o", filepath.Join(dir, "nutcracker.out"), "-p", filepath.Join(dir, "nutcracker.pid"))
}

func startRelay(_ context.Context, dir, listen, redis string) (*program.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return program.Launch(dir, "relay", self, relayCommand, listen, redis)
}

// startLockproxy builds lockproxy from this module, so that what is measured is
// what is here, and starts it with its telemetry on.
func startLockproxy(ctx context.Context, dir, listen, redis string) (*program.Process, error) {
	file := filepath.Join(dir, "lockproxy")
	progress("building lockproxy")
	build := exec.CommandContext(ctx, "go", "build", "-o", file, "github.com/lockproxy/lockproxy/cmd/lockproxy")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("does not build: %w: %.300s", err, strings.Join(strings.Fields(string(out)), " "))
	}
	return program.Launch(dir, lockproxy, file, "--upstream", "redis://"+redis, "--listen", listen, "--metrics-listen", "127.0.0.1:0", "--drain-delay", "0")
}
