package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"

	"github.com/lockproxy/lockproxy/internal/program"
)

// The rows of the data tables, in the order each round measures them.
const (
	direct     = "direct"
	twemproxy  = "twemproxy"
	haproxy    = "HAProxy, TCP"
	predixy    = "predixy"
	envoy      = "Envoy"
	byteRelay  = "byte relay"
	leastProxy = "least proxy in Go"
	leastLine  = "least hand-off in Go" // for locks only
	lockproxy  = "lockproxy"

	clusterDirect    = "direct, cluster"
	clusterPredixy   = "predixy, cluster"
	clusterLeast     = "least proxy in Go, cluster"
	clusterLockproxy = "lockproxy, cluster"
)

// clusterOf is the row before a cluster, by the row before one Redis.
var clusterOf = map[string]string{direct: clusterDirect, predixy: clusterPredixy, leastProxy: clusterLeast, lockproxy: clusterLockproxy}

// target is one row of the data tables: a way to Redis.
type target struct {
	name    string
	addr    string             // of a herd all, with commas
	proxy   *program.Process   // nil for direct
	beside  []*program.Process // more proxies of a herd
	redis   *redis
	problem string // why it could not be started, "" if it was
}

// redis is one server, or the nodes of a cluster.
type redis struct {
	nodes []*program.Process
	addrs []string
}

// clustered says that redis-benchmark has to find the nodes itself.
func (t *target) clustered() bool { return t.name == clusterDirect }

// environment is every server of one run.
type environment struct {
	dir      string // of their files
	binary   string // lockproxy, once it is built
	single   *redis
	cluster  *redis // nil where there is none
	targets  []*target
	versions []string
}

// startEnvironment starts Redis and the ways to it that are asked for. Only Redis and redis-benchmark are a must; another that cannot
// start becomes a row that says why.
func startEnvironment(ctx context.Context, dir string, s settings) (*environment, error) {
	for _, program := range []string{"redis-server", "redis-benchmark"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%s is not installed", program)
		}
	}
	b := &environment{dir: dir, single: &redis{}, versions: []string{redisVersion(ctx)}}
	if err := b.single.start(ctx, dir, "redis-server"); err != nil {
		b.stop()
		return nil, err
	}
	if s.only == "scripts" {
		return b, nil
	}
	buildProblem := b.build(ctx)
	for _, p := range proxies {
		b.add(ctx, p, p.name, b.single, buildProblem)
	}
	if s.wants("data") {
		b.cluster = &redis{}
		problem := b.cluster.startCluster(ctx, dir)
		for _, p := range proxies {
			if name := clusterOf[p.name]; name != "" {
				p.start = p.cluster
				b.add(ctx, p, name, b.cluster, firstOf(problem, buildProblem))
			}
		}
	}
	if ctx.Err() != nil {
		b.stop()
		return nil, ctx.Err()
	}
	return b, nil
}

func firstOf(problems ...error) error {
	for _, err := range problems {
		if err != nil {
			return err
		}
	}
	return nil
}

// add starts one way to Redis, unless there is a problem already that concerns it.
func (b *environment) add(ctx context.Context, p proxy, name string, to *redis, problem error) {
	t := &target{name: name, redis: to}
	b.targets = append(b.targets, t)
	if p.start == nil && len(to.addrs) > 0 {
		t.addr = to.addrs[0]
		return
	}
	err := problem
	if err == nil || p.name != lockproxy && to == b.single {
		if t.addr, err = program.FreeAddr(); err == nil {
			t.proxy, err = p.start(ctx, b, t.addr, to)
		}
		if err == nil {
			err = t.proxy.Ready(ctx, t.addr, tryGet)
		}
	}
	if err != nil {
		t.problem = err.Error()
		progress("*** NOT MEASURED: %s: %s ***", name, t.problem)
		return
	}
	if version := p.versionOf(ctx); version != "" && to == b.single {
		b.versions = append(b.versions, version)
	}
}

// stop ends every server, Redis last.
func (b *environment) stop() {
	for _, t := range b.targets {
		if t.proxy != nil {
			t.proxy.Stop()
		}
	}
	for _, r := range []*redis{b.cluster, b.single} {
		if r != nil {
			r.stop()
		}
	}
}

// target returns the row of that name.
func (b *environment) target(name string) *target {
	i := slices.IndexFunc(b.targets, func(t *target) bool { return t.name == name })
	if i < 0 {
		panic("no row " + name)
	}
	return b.targets[i]
}

// start adds a server.
func (r *redis) start(ctx context.Context, dir, name string, args ...string) error {
	addr, err := program.FreeAddr()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(addr)
	p, err := program.Launch(dir, name, "redis-server", append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--daemonize", "no", "--maxclients", "40000"}, args...)...)
	if err != nil {
		return err
	}
	r.nodes, r.addrs = append(r.nodes, p), append(r.addrs, addr)
	return p.Ready(ctx, addr, tryPing)
}

func (r *redis) stop() {
	for _, p := range r.nodes {
		p.Stop()
	}
}

// startCluster makes a cluster of three masters.
func (r *redis) startCluster(ctx context.Context, dir string) error {
	const nodes, slots = 3, 16384
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		if err := r.start(ctx, dir, name, "--cluster-enabled", "yes", "--cluster-config-file", name+".conf"); err != nil {
			return err
		}
		first, last := fmt.Sprint(slots*i/nodes), fmt.Sprint(slots*(i+1)/nodes-1)
		if _, err := ask(ctx, r.addrs[i], "CLUSTER", "ADDSLOTSRANGE", first, last); err != nil {
			return err
		}
		host, port, _ := net.SplitHostPort(r.addrs[i])
		if _, err := ask(ctx, r.addrs[0], "CLUSTER", "MEET", host, port); i > 0 && err != nil {
			return err
		}
	}
	for i, p := range r.nodes {
		if err := p.Ready(ctx, r.addrs[i], wholeCluster); err != nil {
			return err
		}
	}
	return nil
}
