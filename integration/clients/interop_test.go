package clients

import (
	"context"
	"slices"
	"testing"
	"time"

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
	present []string
	fetch   [][]string
	build   [][]string
	run     []string
	env     []string
	caching bool // it has client-side caching: the step "caching"
	push    bool // it has a handler for pushes: the step "push"
}

func (c client) steps() []string {
	steps := slices.Clone(data)
	if c.caching {
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

func TestInterop(t *testing.T) {
	if !harness.Asked() {
		t.Skip("real clients run by `make interop`, or with -run Interop")
	}
	for _, c := range clients {
		t.Run(c.name, c.test)
	}
}

func (c client) test(t *testing.T) {
	project := harness.Project{
		Name: c.name, Folder: c.name, Tools: c.tools, Present: c.present, Fetch: c.fetch, Build: c.build, Env: c.env,
	}
	dir := project.Ready(t)
	server, addr := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	cmd := project.Command(ctx, dir, c.run)
	cmd.Env = append(cmd.Env, "LOCKPROXY_ADDR="+addr)
	if *direct {
		cmd.Env = append(cmd.Env, "PARTS=data")
	}
	began := time.Now()
	steps, err := obey(t, cmd, addr, server.Addr())
	if want := c.steps(); err != nil || !slices.Equal(steps, want) {
		t.Errorf("%s passed %q of %q: %v", c.name, steps, want, err)
	}
	t.Logf("%d steps in %v", len(steps), time.Since(began).Round(time.Millisecond))
}
