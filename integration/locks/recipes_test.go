package locks

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The recipes of docs/RECIPES.md for a shell and for Go, as they stand there or in their files; those in other languages are in integration/clients.
func TestRecipes(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, p *harness.Proxy, b harness.Block){
		"Cron on several machines": cronRecipe, "A rollout": rolloutRecipe, "At most so many at once": limitRecipe,
		"reindex.go": longJobRecipe, "leader.go": leaderRecipe,
	}
	blocks := harness.Blocks(t, "sh", "go")
	if len(blocks) != len(tests) {
		t.Errorf("%d recipes, and tests for %d", len(blocks), len(tests))
	}
	for _, b := range blocks {
		test, known := tests[b.Name]
		if !known {
			t.Errorf("the recipe %q has no test", b.Name)
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			test(t, harness.StartProxy(t, testredis.Start(t).URL()), b)
		})
	}
}

// shell is a command in a folder, with lockproxy in its PATH.
func shell(t *testing.T, p *harness.Proxy, dir string, words ...string) *exec.Cmd {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(harness.Binary(t), filepath.Join(bin, "lockproxy")); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "LOCKPROXY_ADDRESS="+p.Addr())
	return cmd
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func lineCount(t *testing.T, dir, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

var crontab = regexp.MustCompile(`(?m)^(?:\S+ ){5}report (.+)$`)

// Of three machines one makes the report, and a fourth whose clock is late none.
func cronRecipe(t *testing.T, p *harness.Proxy, b harness.Block) {
	line := crontab.FindStringSubmatch(b.Code)
	if line == nil {
		t.Fatalf("no line of a crontab: %q", b.Code)
	}
	dir := t.TempDir()
	command := strings.ReplaceAll(line[1], "/var/log/", dir+"/")
	if command == line[1] {
		t.Fatalf("it writes no log: %q", command)
	}
	write(t, dir, "bin/make-report", "#!/bin/sh\necho made >>"+dir+"/made\n")
	machine := func(int) {
		if out, err := shell(t, p, dir, "/bin/sh", "-c", command).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v, and a mail from cron that says %q", err, out)
		}
	}
	shell(t, p, dir, "true") // the links are there before many need them
	harness.Together(3, machine)
	machine(3)
	if n := lineCount(t, dir, "made"); n != 1 {
		t.Errorf("the report was made %d times", n)
	}
	if n := lineCount(t, dir, "report.log"); n != 3 {
		t.Errorf("the log of the others has %d lines", n)
	}
}

// Four replicas: each migrates alone, and serves after it.
func rolloutRecipe(t *testing.T, p *harness.Proxy, b harness.Block) {
	dir := t.TempDir()
	write(t, dir, "entry", b.Code)
	write(t, dir, "migrate", "#!/bin/sh\nmkdir alone || exit 1\nsleep 0.2\necho once >>migrated\nrmdir alone\n")
	write(t, dir, "server", "#!/bin/sh\ntest -d alone -a ! -s migrated && exit 1\necho serves \"$1\"\n")
	shell(t, p, dir, "true")
	harness.Together(4, func(i int) {
		out, err := shell(t, p, dir, "./entry", fmt.Sprint(i)).CombinedOutput()
		if want := fmt.Sprintf("serves %d\n", i); err != nil || string(out) != want {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
	})
	if n := lineCount(t, dir, "migrated"); n != 4 {
		t.Errorf("%d of 4 have migrated", n)
	}
	write(t, dir, "migrate", "#!/bin/sh\nexit 3\n")
	if out, err := shell(t, p, dir, "./entry").CombinedOutput(); err == nil || strings.Contains(string(out), "serves") {
		t.Errorf("a replica whose migration failed: %v, %q", err, out)
	}
}

// Of nine exports five at most are under way, and each comes to its turn.
func limitRecipe(t *testing.T, p *harness.Proxy, b harness.Block) {
	dir := t.TempDir()
	write(t, dir, "now/.kept", "")
	write(t, dir, "export", "#!/bin/sh\n: >now/$$\nset -- now/*\n[ $# -le 5 ] || exit 1\nsleep 0.2\nrm now/$$\n")
	shell(t, p, dir, "true")
	harness.Together(9, func(int) {
		if out, err := shell(t, p, dir, "/bin/sh", "-c", b.Code).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v, %q", err, out)
		}
	})
}

// built is the program of a recipe in Go, with the modules that its go.mod names.
func built(t *testing.T, p *harness.Proxy, b harness.Block) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, "clients/recipes/go", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, strings.ReplaceAll(string(text), "../../go", filepath.Join(root, "clients/go")))
	}
	write(t, dir, "main.go", b.At(t, p.Addr(), ""))
	ctx, cancel := context.WithTimeout(context.Background(), 10*harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-gcflags=-l", "-ldflags=-w", "-o", "recipe", ".") // it runs once: no time for the optimizer, nor for a debugger
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "recipe")
}

// replica is a program of which several run, and what it says.
type replica struct {
	*testredis.Child
	said *said
}

// said is what a program has said so far.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) has(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), what)
}

func startReplica(t *testing.T, program string) replica {
	t.Helper()
	cmd, out := exec.Command(program), &said{}
	cmd.Stdout, cmd.Stderr = out, out
	return replica{testredis.StartChild(t, cmd), out}
}

// The job takes longer than its lease, and two of them run one after the other. One that is told to stop, or whose lock is freed by force,
// ends with an error.
func longJobRecipe(t *testing.T, p *harness.Proxy, b harness.Block) {
	program := built(t, p, b)
	w := harness.Dial(t, p.Addr())
	held := func() bool { return strings.Contains(w.Do("LOCKINFO", "reindex"), "owner") }
	began := time.Now()
	first, second := startReplica(t, program), startReplica(t, program)
	if a, b := first.Exit(t), second.Exit(t); a != 0 || b != 0 || time.Since(began) < 10*time.Second {
		t.Errorf("two jobs: exit codes %d and %d after %v", a, b, time.Since(began))
	}
	harness.Expect(t, w, "$3\r\n100\r\n", "GET", "reindexed")

	w.Do("DEL", "reindexed")
	stopped := startReplica(t, program)
	// One that is told before it has heard of its lock ends at once, and leaves the lock to its lease.
	harness.Eventually(t, "the job is at work", func() bool { return w.Do("EXISTS", "reindexed") == ":1\r\n" })
	stopped.Signal(syscall.SIGTERM)
	if code := stopped.Exit(t); code == 0 || held() {
		t.Errorf("a job that was told to stop: exit code %d, its lock is held: %v", code, held())
	}

	robbed := startReplica(t, program)
	harness.Eventually(t, "the job has its lock", held)
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "reindex", "FORCE")
	if code := robbed.Exit(t); code == 0 || !robbed.said.has("the lock was lost") {
		t.Errorf("a job whose lock was freed by force: exit code %d, %q", code, robbed.said.text.String())
	}
}

// Of three one leads. When it ends the second leads, when that is killed the third.
func leaderRecipe(t *testing.T, p *harness.Proxy, b harness.Block) {
	program := built(t, p, b)
	w := harness.Dial(t, p.Addr())
	var all []replica
	for n := range 3 {
		all = append(all, startReplica(t, program))
		if n == 0 {
			harness.Eventually(t, "the first leads", func() bool { return all[0].said.has("the leader, with token") })
			continue
		}
		harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, w, "leader") == n })
	}
	all[0].Signal(syscall.SIGTERM)
	all[0].Exit(t)
	harness.Eventually(t, "the second leads", func() bool { return all[1].said.has("the leader, with token") })
	all[1].Kill()
	harness.Eventually(t, "the third leads", func() bool { return all[2].said.has("the leader, with token") })
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "leader", "FORCE")
	harness.Eventually(t, "the third stops leading", func() bool { return all[2].said.has("not the leader: lockproxy: the lock was lost") })
}
