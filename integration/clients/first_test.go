package clients

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// first is a program that users of a language without a package copy: it works while it holds a lock.
type first struct {
	project harness.Project
	source  string   // the file that they copy
	run     []string // how it is started, at ADDR, which is HOST and PORT; the lock's name and what it works on follow
}

var firsts = []first{
	{project: projectOf("redis-client"), source: "first.rb", run: []string{"ruby", "first.rb", "redis://ADDR"}},
	{project: projectOf("phpredis"), source: "first.php", run: []string{"php", "first.php", "HOST", "PORT"}},
	{project: projectOf("redis-rs"), source: "src/bin/first.rs", run: []string{"target/debug/first", "redis://ADDR"}},
	{
		project: harness.Project{
			Name: "stackexchange-redis", Folder: "stackexchange-redis", Tools: []string{"dotnet"},
			Fetch: [][]string{{"dotnet", "restore"}},
			Build: [][]string{{"dotnet", "build", "--no-restore", "--output", "out"}},
		},
		source: "Program.cs", run: []string{"dotnet", "out/first.dll", "ADDR"},
	},
}

func projectOf(name string) harness.Project {
	return clients[slices.IndexFunc(clients, func(c client) bool { return c.name == name })].project()
}

// TestInteropFirst tries each program as it stands, with a lease, and with its other line, with the connection's lock.
func TestInteropFirst(t *testing.T) {
	if !harness.Asked() {
		t.Skip("real clients run by `make interop`, or with -run Interop")
	}
	testredis.NeedsProcesses(t)
	for _, f := range firsts {
		t.Run(f.project.Name, func(t *testing.T) {
			dir := f.project.Ready(t)
			t.Parallel()
			proxy := harness.StartProxy(t, testredis.Start(t).URL())
			for _, lease := range []bool{true, false} {
				name := map[bool]string{true: "lease", false: "connection"}[lease]
				t.Run(name, func(t *testing.T) {
					f.choose(t, dir, lease)
					tries := map[string]func(holding){"waits": waits, "in vain": inVain, "forced": forced, "killed": killed}
					if !lease { // which a library may go on with over another connection
						tries["cut off"] = cutOff
					}
					for what, try := range tries {
						t.Run(what, func(t *testing.T) {
							t.Parallel()
							try(holding{T: t, first: f, dir: dir, addr: proxy.Addr(), lock: name + " " + what, lease: lease})
						})
					}
				})
			}
		})
	}
}

var (
	leaseTime = regexp.MustCompile(`(EX['"], ['"]?)30`)
	twoLines  = regexp.MustCompile(`(?m)^( *)(.*\bEX\b.*)\n *(#|//) (.*)$`)
)

// choose builds the program with a lease of 3 s, as it would be with one of 30 but for the time, or with the line below.
func (f first) choose(t *testing.T, dir string, lease bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.project.Folder, f.source))
	if err != nil {
		t.Fatal(err)
	}
	change, to := leaseTime, "${1}3"
	if !lease {
		change, to = twoLines, "$1$3 $2\n$1$4"
	}
	if n := len(change.FindAll(text, -1)); n != 1 {
		t.Fatalf("%s: %v is there %d times", f.source, change, n)
	}
	if err := os.WriteFile(filepath.Join(dir, f.source), change.ReplaceAll(text, []byte(to)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, words := range f.project.Build {
		if out, err := f.project.Command(t.Context(), dir, words).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
		}
	}
}

// holding is one lock, and programs that take it.
type holding struct {
	*testing.T
	first
	dir, addr, lock string
	lease           bool
}

// program is one that has been started.
type program struct {
	*exec.Cmd
	out strings.Builder
}

// start has a program work on pages, each of which takes it a second.
func (h holding) start(pages int) *program {
	h.Helper()
	host, port, _ := net.SplitHostPort(h.addr)
	address := strings.NewReplacer("ADDR", h.addr, "HOST", host, "PORT", port)
	var words []string
	for _, word := range h.run {
		words = append(words, address.Replace(word))
	}
	words = append(append(words, h.lock), slices.Repeat([]string{"page"}, pages)...)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	h.Cleanup(cancel)
	p := &program{Cmd: h.project.Command(ctx, h.dir, words)}
	p.Stdout, p.Stderr = &p.out, &p.out
	if err := p.Start(); err != nil {
		h.Fatal(err)
	}
	return p
}

// working is a program that holds the lock and has much to do.
func (h holding) working(w *harness.Wire) *program {
	h.Helper()
	p := h.start(100)
	harness.Eventually(h, "it holds the lock", func() bool { return strings.Contains(w.Do("LOCKINFO", h.lock), "plain") })
	return p
}

// done wants the program to have worked on all pages and to have given the lock back.
func (h holding) done(w *harness.Wire, p *program, pages int) {
	h.Helper()
	if err := p.Wait(); err != nil || strings.Count(p.out.String(), "page") != pages {
		h.Errorf("not done: %v\n%s", err, &p.out)
	}
	harness.Expect(h, w, "+OK\r\n", "LOCK", h.lock)
}

// stopped wants the program to have said why it ends, before its work was done.
func (h holding) stopped(p *program, why string) {
	h.Helper()
	err := p.Wait()
	if out := p.out.String(); err == nil || !regexp.MustCompile(why).MatchString(out) || strings.Count(out, "page") == 100 {
		h.Errorf("not stopped, want %s: %v\n%s", why, err, out)
	}
}

// waits: it gets the lock when the holder gives it back.
func waits(h holding) {
	w := harness.Dial(h, h.addr)
	harness.Expect(h, w, "+OK\r\n", "LOCK", h.lock)
	p := h.start(2)
	harness.Eventually(h, "it waits", func() bool { return harness.WaitingHere(h, w, h.lock) == 1 })
	harness.Expect(h, w, ":1\r\n", "UNLOCK", h.lock)
	h.done(w, p, 2)
}

// inVain: the holder keeps the lock for longer than it waits.
func inVain(h holding) {
	harness.Expect(h, harness.Dial(h, h.addr), "+OK\r\n", "LOCK", h.lock)
	h.stopped(h.start(1), "somebody else has it")
}

// forced: an operator frees the lock.
func forced(h holding) {
	w := harness.Dial(h, h.addr)
	p := h.working(w)
	harness.Expect(h, w, ":1\r\n", "UNLOCK", h.lock, "FORCE")
	h.stopped(p, map[bool]string{true: "NOTHELD", false: "LOCKLOST"}[h.lease])
}

// killed: a second program gets the lock when the first one has died: long before the end of a lease of lockproxy's, if the lock is the
// connection's.
func killed(h holding) {
	w := harness.Dial(h, h.addr)
	dying := h.working(w)
	p := h.start(2)
	harness.Eventually(h, "the second one waits", func() bool { return harness.WaitingHere(h, w, h.lock) == 1 })
	_ = dying.Process.Kill()
	_ = dying.Wait()
	h.done(w, p, 2)
}

var holdersAddr = regexp.MustCompile(`\$4\r\naddr\r\n\$\d+\r\n(\S+)\r\n`)

// cutOff: the connection breaks.
func cutOff(h holding) {
	w := harness.Dial(h, h.addr)
	p := h.working(w)
	harness.Expect(h, w, "+OK\r\n", "CLIENT", "KILL", holdersAddr.FindStringSubmatch(w.Do("LOCKINFO", h.lock))[1])
	h.stopped(p, `NOTHELD|(?i)end of file|EOF|broken pipe|reset`)
}
