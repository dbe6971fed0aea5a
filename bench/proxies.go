package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/program"
)

// proxy is a program that stands between clients and Redis. start and cluster, for one Redis and for a cluster, are nil where there is
// none in between.
type proxy struct {
	name           string
	start, cluster starter
	version        []string // prints its version
}

type starter func(ctx context.Context, b *environment, listen string, to *redis) (*program.Process, error)

// proxies are measured with as many threads as each takes by itself: twemproxy and predixy one, the others one for each CPU.
var proxies = []proxy{
	{name: direct},
	{name: twemproxy, start: startTwemproxy, version: []string{"nutcracker", "--version"}},
	{name: haproxy, start: startHAProxy, version: []string{"haproxy", "-v"}},
	{name: predixy, start: startPredixy, cluster: startPredixyCluster, version: []string{"predixy", "--version"}},
	{name: envoy, start: startEnvoy, version: []string{"envoy", "--version"}},
	{name: byteRelay, start: startFloor("relay")},
	{name: leastProxy, start: startFloor("least"), cluster: startFloor("least")},
	{name: leastLine, start: startFloor("handoffs")},
	{name: lockproxy, start: startLockproxy, cluster: startLockproxyCluster},
}

// number is a version in what a program says of itself.
var number = regexp.MustCompile(`\d+(\.\d+)+`)

func (p proxy) versionOf(ctx context.Context) string {
	if p.version == nil {
		return ""
	}
	out, _ := exec.CommandContext(ctx, p.version[0], p.version[1:]...).CombinedOutput() // only a caption
	return p.version[0] + " " + number.FindString(string(out))
}

// configured writes a proxy's settings and starts it.
func configured(b *environment, name, binary, file, settings string, args ...string) (*program.Process, error) {
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, errors.New("not installed")
	}
	if err := os.WriteFile(filepath.Join(b.dir, file), []byte(settings), 0o600); err != nil {
		return nil, err
	}
	return program.Launch(b.dir, name, path, args...)
}

func startTwemproxy(_ context.Context, b *environment, listen string, to *redis) (*program.Process, error) {
	stats, err := program.FreeAddr()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(stats)
	return configured(b, twemproxy, "nutcracker", "nutcracker.yml", fmt.Sprintf(`bench:
  listen: %s
  hash: fnv1a_64
  distribution: modula
  redis: true
  auto_eject_hosts: false
  preconnect: true
  backlog: 4096
  servers:
    - %s:1
`, listen, to.addrs[0]), "-c", "nutcracker.yml", "-a", host, "-s", port, "-o", "nutcracker.out", "-p", "nutcracker.pid")
}

func startHAProxy(_ context.Context, b *environment, listen string, to *redis) (*program.Process, error) {
	return configured(b, "haproxy", "haproxy", "haproxy.cfg", fmt.Sprintf(`defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen bench
  bind %s
  server redis %s
`, listen, to.addrs[0]), "-f", "haproxy.cfg", "-db")
}

func startPredixy(_ context.Context, b *environment, listen string, to *redis) (*program.Process, error) {
	return configured(b, predixy, "predixy", "predixy.conf", fmt.Sprintf(`Bind %s
WorkerThreads 1
ClientTimeout 0
Authority {
  Auth {
    Mode admin
  }
}
StandaloneServerPool {
  Hash crc16
  Distribution modula
  RefreshMethod fixed
  Group one {
    + %s
  }
}
`, listen, to.addrs[0]), "predixy.conf")
}

func startPredixyCluster(_ context.Context, b *environment, listen string, to *redis) (*program.Process, error) {
	return configured(b, "predixy-cluster", "predixy", "predixy-cluster.conf", fmt.Sprintf(`Bind %s
WorkerThreads 1
ClientTimeout 0
Authority {
  Auth {
    Mode admin
  }
}
ClusterServerPool {
  Servers {
    + %s
  }
}
`, listen, strings.Join(to.addrs, "\n    + ")), "predixy-cluster.conf")
}

func startEnvoy(_ context.Context, b *environment, listen string, to *redis) (*program.Process, error) {
	host, port, _ := net.SplitHostPort(listen)
	toHost, toPort, _ := net.SplitHostPort(to.addrs[0])
	return configured(b, "envoy", "envoy", "envoy.yaml", fmt.Sprintf(`static_resources:
  listeners:
  - address: {socket_address: {address: %s, port_value: %s}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: bench
          settings: {op_timeout: 60s}
          prefix_routes: {catch_all_route: {cluster: redis}}
  clusters:
  - name: redis
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: redis
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: %s, port_value: %s}}}
`, host, port, toHost, toPort), "-c", "envoy.yaml", "--use-dynamic-base-id", "--log-level", "warning")
}

func startFloor(name string) starter {
	return func(_ context.Context, b *environment, listen string, to *redis) (*program.Process, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return program.Launch(b.dir, fmt.Sprint(name, "-", len(to.addrs)), self, slices.Concat([]string{name, listen}, to.addrs)...)
	}
}

// build makes lockproxy from this module, so that what is measured is what is here.
func (b *environment) build(ctx context.Context) error {
	progress("building lockproxy")
	b.binary = filepath.Join(b.dir, "lockproxy")
	build := exec.CommandContext(ctx, "go", "build", "-o", b.binary, "github.com/lockproxy/lockproxy/cmd/lockproxy")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("does not build: %w: %.300s", err, strings.Join(strings.Fields(string(out)), " "))
	}
	return nil
}

// launch starts lockproxy with its telemetry on; with upstream "" before the embedded store.
func (b *environment) launch(name, listen, upstream string) (*program.Process, error) {
	args := []string{"--listen", listen, "--metrics-listen", "127.0.0.1:0", "--max-clients", "20000", "--drain-delay", "0"}
	if upstream != "" {
		args = append(args, "--upstream", upstream)
	}
	return program.Launch(b.dir, name, b.binary, args...)
}

func startLockproxy(_ context.Context, b *environment, listen string, to *redis) (*program.Process, error) {
	return b.launch(lockproxy, listen, "redis://"+to.addrs[0])
}

func startLockproxyCluster(_ context.Context, b *environment, listen string, to *redis) (*program.Process, error) {
	return b.launch("lockproxy-cluster", listen, "redis-cluster://"+to.addrs[0])
}
