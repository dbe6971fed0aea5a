package clients

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// What a program does, in this order. It cannot pass by doing less.
var (
	data  = []string{"handshake", "strings", "hashes", "pipeline", "transaction", "watch", "pubsub", "blocking", "scripts"}
	locks = []string{"lock", "owner", "contention", "block", "lost"}
)

// client is one folder: how its packages are had, how its program is started, and what it does beside the steps above.
type client struct {
	name    string
	tools   []string // as the fields of harness.Project
	beside  []string // folders of packages that its program uses
	present []string
	fetch   [][]string
	build   [][]string
	run     []string
	lost    []string // how its program for TestInteropLost is started
	env     []string
	caching bool // it has client-side caching: the step "caching"
	cluster bool // it has a mode for clusters
	push    bool // it has a handler for pushes: the step "push"
}

// steps are what its program does in a way.
func (c client) steps(w way) []string {
	var steps []string
	for _, step := range data {
		steps = append(steps, step)
		if w.cluster && step == "pubsub" {
			steps = append(steps, "sharded")
		}
	}
	if c.caching && w.caching() {
		steps = append(steps, "caching")
	}
	if !*direct {
		steps = append(steps, locks...)
		if c.push {
			steps = append(steps, "push")
		}
	}
	return steps
}

// caching: of keys on several nodes nobody tells on one connection.
func (w way) caching() bool { return !w.cluster && !w.nodes }

func (w way) parts() string {
	parts := "data"
	if w.caching() {
		parts += ",caching"
	}
	if !*direct {
		parts += ",locks"
	}
	return parts
}

func TestInterop(t *testing.T) {
	if !harness.Asked() {
		t.Skip("real clients run by `make interop`, or with -run Interop")
	}
	ready := map[string]string{} // where each is built
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) { ready[c.name] = c.project().Ready(t) })
	}
	for _, w := range ways {
		if *direct && w.name != "single" {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			w.test(t, ready)
		})
	}
}

// test runs all clients that are ready, one after the other.
func (w way) test(t *testing.T, ready map[string]string) {
	up := w.start(t)
	addr := w.proxy(t, up)
	if *direct {
		addr = strings.TrimPrefix(up.url, "redis://")
	}
	for _, c := range clients {
		if dir := ready[c.name]; dir != "" && (c.cluster || !w.cluster) {
			t.Run(c.name, func(t *testing.T) { c.test(t, w, up, dir, addr) })
		}
	}
}

func (c client) project() harness.Project {
	return harness.Project{
		Name: c.name, Folder: c.name, Beside: c.beside, Tools: c.tools, Present: c.present, Fetch: c.fetch, Build: c.build, Env: c.env,
	}
}

func (c client) test(t *testing.T, w way, up upstream, dir, addr string) {
	forget(t, addr)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	cmd := c.project().Command(ctx, dir, c.run)
	cmd.Env = append(cmd.Env, "LOCKPROXY_ADDR="+addr, "PARTS="+w.parts())
	if w.cluster {
		cmd.Env = append(cmd.Env, "LOCKPROXY_MODE=cluster")
	}
	if w.nodes {
		cmd.Env = append(cmd.Env, "LOCKPROXY_NODES=1")
	}
	began := time.Now()
	steps, err := obey(t, cmd, addr, up)
	if want := c.steps(w); err != nil || !slices.Equal(steps, want) {
		t.Errorf("%s passed %q of %q: %v", c.name, steps, want, err)
	}
	t.Logf("%d steps in %v", len(steps), time.Since(began).Round(time.Millisecond))
}

// forget leaves nothing of the client before.
func forget(t *testing.T, addr string) {
	t.Helper()
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do("SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
}
