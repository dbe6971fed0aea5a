package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// What a program does, in this order. It cannot pass by doing less.
var (
	data  = []string{"handshake", "strings", "hashes", "pipeline", "transaction", "watch", "pubsub", "blocking", "scripts"}
	locks = []string{"lock", "owner", "contention", "block", "lost"}
)

// client is one folder: how its packages are had, how its program is started, and what it does beside the steps above.
type client struct {
	name    string
	tools   []string   // commands of the toolchain
	present []string   // says by its exit code that fetch has nothing to do; nil: fetch always runs
	fetch   [][]string // gets its packages, in a copy of the folder outside the repository; without them it is not tested
	build   [][]string
	run     []string
	env     []string // more environment: "NAME=path below the folder"
	caching bool     // it has client-side caching: the step "caching"
	push    bool     // it has a handler for pushes: the step "push"
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
	if !asked() {
		t.Skip("real clients run by `make interop`, or with -run Interop")
	}
	for _, c := range clients {
		t.Run(c.name, c.test)
	}
}

func (c client) test(t *testing.T) {
	for _, tool := range c.tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("*** %s NOT TESTED: no %s here ***", c.name, tool)
		}
	}
	dir := c.ready(t)
	server, addr := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	cmd := c.command(ctx, dir, c.run)
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

// ready copies the client's folder to the cache and installs its packages there.
func (c client) ready(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "lockproxy-interop", c.name)
	copyFolder(t, c.name, dir)
	ctx, cancel := context.WithTimeout(context.Background(), 20*patience)
	defer cancel()
	if c.present == nil || c.command(ctx, dir, c.present).Run() != nil {
		for _, words := range c.fetch {
			if out, err := c.command(ctx, dir, words).CombinedOutput(); err != nil {
				t.Skipf("*** %s NOT TESTED: %s: %v\n%s ***", c.name, strings.Join(words, " "), err, out)
			}
		}
	}
	for _, words := range c.build {
		if out, err := c.command(ctx, dir, words).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
		}
	}
	return dir
}

// command is words as run in dir; a program that has been built there is found, too.
func (c client) command(ctx context.Context, dir string, words []string) *exec.Cmd {
	name := words[0]
	if strings.Contains(name, "/") {
		name = filepath.Join(dir, name)
	}
	cmd := exec.CommandContext(ctx, name, words[1:]...)
	cmd.Dir, cmd.Env = dir, os.Environ()
	for _, pair := range c.env {
		name, path, _ := strings.Cut(pair, "=")
		cmd.Env = append(cmd.Env, name+"="+filepath.Join(dir, path))
	}
	return cmd
}

// copyFolder copies the files of a client to dir. One that has not changed keeps its time, so that builds are short.
func copyFolder(t *testing.T, from, dir string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, below)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if old, err := os.ReadFile(target); err == nil && string(old) == string(text) {
			return nil
		}
		return os.WriteFile(target, text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}
