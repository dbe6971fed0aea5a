package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/program"
)

// environment is what every unit is run with.
type environment struct {
	s      settings
	suite  *suite
	binary string // lockproxy's
	skips  skipList
}

// maxHangs is how many tests of a unit may hang before it is given up.
const maxHangs = 12

// runUnit runs one unit through lockproxy, or direct. When a test hangs, the
// unit is run again without it, so that the others are counted. An error is
// ours; what the unit says is in the outcome.
func (b *environment) runUnit(ctx context.Context, unit string, direct bool) (*outcome, error) {
	var leave, hung []string
	if !direct {
		leave = b.skips.norun(unit)
	}
	for {
		o, err := b.runOnce(ctx, unit, direct, append(leave, hung...))
		if err != nil {
			return nil, err
		}
		if o.hung != "" && len(hung) < maxHangs && !slices.Contains(hung, o.hung) {
			progress("tcl: %s hangs in: %s", unit, o.hung)
			hung = append(hung, o.hung)
			continue
		}
		for _, name := range hung {
			o.Failed[name] = "hung"
		}
		return o, nil
	}
}

// runOnce runs a unit without some of its tests, on a fresh server and behind a
// fresh lockproxy.
func (b *environment) runOnce(ctx context.Context, unit string, direct bool, leave []string) (*outcome, error) {
	dir, err := os.MkdirTemp("", "lockproxy-tcl-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := b.suite.place(dir); err != nil {
		return nil, err
	}
	if b.s.resp == 3 {
		if err := forceRESP3(dir); err != nil {
			return nil, err
		}
	}
	servers, upstream, err := b.startServers(ctx, dir, direct)
	defer stopAll(servers)
	if err != nil {
		return nil, err
	}
	way, port := "direct", portOf(upstream)
	if !direct {
		way = "proxy"
		var proxy *program.Process
		if proxy, port, err = b.startProxy(ctx, dir, upstream); err != nil {
			return nil, err
		}
		defer proxy.Stop()
		servers = append(servers, proxy)
	}
	o, err := b.runSuite(ctx, dir, unit, port, leave)
	if err != nil {
		return nil, err
	}
	for _, p := range servers {
		if p.Ended() && !strings.HasPrefix(unit, "unit/shutdown") {
			o.Aborted = p.Name + " ended: " + p.Tail()
		}
	}
	return o, b.keepLogs(dir, unit, way)
}

func (b *environment) startProxy(ctx context.Context, dir, upstream string) (*program.Process, string, error) {
	port, err := program.FreePort()
	if err != nil {
		return nil, "", err
	}
	addr := net.JoinHostPort("127.0.0.1", port)
	args := append([]string{"--listen", addr, "--upstream", upstream, "--allow", "monitor,debug"}, b.s.args...)
	p, err := program.Launch(dir, "lockproxy", b.binary, args...)
	if err != nil {
		return nil, "", err
	}
	if err = p.Ready(ctx, addr, ping); err == nil {
		err = awaitProbe(ctx, addr)
	}
	if err != nil {
		p.Stop()
		return nil, "", err
	}
	return p, port, nil
}

// awaitProbe returns when lockproxy has taken a lock for a try at each node, which it does at the start: whoever is subscribed to
// everything would hear of it. A LOCK waits for that of its node, and so many keys have slots of all nodes.
func awaitProbe(ctx context.Context, addr string) error {
	for i := range 64 {
		key := fmt.Sprint("tcl-", i)
		if _, err := ask(ctx, addr, "LOCK", key, "OWNER", "tcl", "EX", "30"); err != nil {
			return err
		}
		if _, err := ask(ctx, addr, "UNLOCK", key, "OWNER", "tcl"); err != nil {
			return err
		}
	}
	return nil
}

// runSuite has the suite test what listens on port, for as long as a unit may take.
func (b *environment) runSuite(ctx context.Context, dir, unit, port string, leave []string) (*outcome, error) {
	base, err := program.FreePort()
	if err != nil {
		return nil, err
	}
	args := []string{"tests/test_helper.tcl", "--host", "127.0.0.1", "--port", port, "--single", unit, "--durable", "--baseport", base,
		"--timeout", strconv.Itoa(int(b.s.stall.Seconds())), "--tags", "-" + strings.Join(b.s.deny, " -")}
	switch {
	case b.s.nodes > 0: // which is a single database, too
		args = append(args, "--cluster-mode")
	case !b.s.multiDB:
		args = append(args, "--singledb")
	}
	if b.s.resp == 3 {
		args = append(args, "--force-resp3")
	}
	for _, name := range leave {
		args = append(args, "--skiptest", name)
	}
	began := time.Now()
	p, err := program.Launch(dir, "suite", "tclsh", args...)
	if err != nil {
		return nil, err
	}
	late := false
	select {
	case <-p.Done:
	case <-time.After(b.s.timeout):
		late = true
	case <-ctx.Done():
	}
	p.Kill() // the suite's clients, which are processes, go with it
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	o := parseOutput(unit, p.Output())
	o.Seconds = time.Since(began).Seconds()
	switch {
	case late:
		o.Aborted = fmt.Sprintf("not at its end after %v", b.s.timeout)
	case !o.finished && o.Aborted == "":
		o.Aborted = "ended early: " + p.Tail()
	}
	return o, nil
}

// keepLogs moves what was printed to the folder the -logs flag names.
func (b *environment) keepLogs(dir, unit, way string) error {
	if b.s.logs == "" {
		return nil
	}
	to := filepath.Join(b.s.logs, way, filepath.FromSlash(unit))
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return err
	}
	for _, log := range logs {
		name := filepath.Base(log)
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
