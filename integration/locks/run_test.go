package locks

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// runner is a `lockproxy run` with what it, and its command, print.
type runner struct {
	t     *testing.T
	child *testredis.Child
	in    io.WriteCloser
	lines chan string
}

// startRun starts `lockproxy run` with a script as its command, and without a terminal.
func startRun(t *testing.T, p *harness.Proxy, script string, flags ...string) *runner {
	t.Helper()
	return begin(t, exec.Command(harness.Binary(t), runs(p, script, flags...)...))
}

func runs(p *harness.Proxy, script string, flags ...string) []string {
	args := append([]string{"run", "--address", p.Addr()}, flags...)
	return append(args, "--", "/bin/sh", "-c", script)
}

func begin(t *testing.T, cmd *exec.Cmd) *runner {
	t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	defer w.Close()
	cmd.Stdout = w
	if cmd.Stderr == nil {
		cmd.Stderr = w
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, in: in, lines: make(chan string, 100)}
	r.child = testredis.StartChild(t, cmd)
	go r.read(out)
	return r
}

func (r *runner) read(out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		r.lines <- s.Text()
	}
}

// await returns the next line that begins so.
func (r *runner) await(begins string) string {
	r.t.Helper()
	for over := time.After(harness.Patience); ; {
		select {
		case line := <-r.lines:
			if strings.HasPrefix(line, begins) {
				return line
			}
		case <-over:
			r.t.Fatalf("it never says %q", begins)
		}
	}
}

// gone waits until a process is no more, or is dead and nobody has asked for its exit code.
func gone(t *testing.T, pid string) {
	t.Helper()
	harness.Eventually(t, "the command has ended", func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// The exit code is the command's, and the lock is free after it, whatever happened.
func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "LOCK", "taken")
	for _, c := range []struct {
		lock, script string
		code         int
	}{
		{"free", "exit 0", 0},
		{"free", "exit 7", 7},
		{"free", "kill -TERM $$", 128 + 15},
		{"free", `[ "$LOCKPROXY_LOCK" = free ] && [ "$LOCKPROXY_TOKEN" -gt 1000000000000000 ]`, 0},
		{"taken", "echo never", 124},
		{"", "echo never", 125},
	} {
		r := startRun(t, p, c.script, "--lock", c.lock, "--wait", "0")
		if code := r.child.Exit(t); code != c.code {
			t.Errorf("%s with the lock %q: exit code %d, not %d", c.script, c.lock, code, c.code)
		}
		harness.Expect(t, w, "+OK\r\n", "LOCK", "free")
		harness.Expect(t, w, ":1\r\n", "UNLOCK", "free")
	}
	none := testredis.StartChild(t, exec.Command(harness.Binary(t), "run", "--lock", "free", "--", "/no/such/command"))
	if code := none.Exit(t); code != 127 {
		t.Errorf("a command that does not exist: exit code %d", code)
	}
}

// Two on one lock run one after the other, also when the first is killed: its command is killed with it, and the next starts when the lease
// is over.
func TestRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	w := harness.Dial(t, p.Addr())
	script := "echo begin $$; read line; echo end $line"
	one := startRun(t, p, script, "--lock", "job", "--lease", "2s")
	line := one.await("begin")
	next := startRun(t, p, script, "--lock", "job", "--wait", "10m")
	harness.Eventually(t, "the next waits", func() bool { return harness.WaitingHere(t, w, "job") == 1 })
	one.child.Kill()
	gone(t, strings.TrimPrefix(line, "begin "))
	next.await("begin")
	last := startRun(t, p, script, "--lock", "job", "--fair")
	harness.Eventually(t, "the last waits", func() bool { return harness.WaitingHere(t, w, "job") == 1 })
	next.says("well")
	next.await("end well")
	if code := next.child.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	last.await("begin")
}

// Several locks are held together, or none.
func TestRunHoldsAllLocks(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	w := harness.Dial(t, p.Addr())
	r := startRun(t, p, `echo "begin $LOCKPROXY_LOCK" | tr '\n' ' '; echo "$LOCKPROXY_TOKEN" | grep -c .; read line`, "--lock", "b", "--lock", "a", "--lock", "b")
	if got := r.await("begin"); got != "begin b a 2" {
		t.Errorf("the command was told %q", got)
	}
	for _, key := range []string{"a", "b"} {
		harness.Expect(t, w, "$-1\r\n", "LOCK", key)
		none := startRun(t, p, "echo never", "--lock", key, "--lock", "c", "--wait", "0")
		if code := none.child.Exit(t); code != 124 {
			t.Errorf("exit code %d", code)
		}
	}
	harness.Expect(t, w, "+OK\r\n", "LOCK", "c")
	r.says("")
	if code := r.child.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	harness.Expect(t, w, "+OK\r\n", "MULTILOCK", "2", "a", "b")
}

// When one of several locks is lost the command is stopped, and the others are free then.
func TestRunLosesOneOfSeveral(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	w := harness.Dial(t, p.Addr())
	r := startRun(t, p, "echo begin; exec sleep 1000", "--lock", "a", "--lock", "b", "--lease", "1h")
	r.await("begin")
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "b", "FORCE")
	if code := r.child.Exit(t); code != 123 {
		t.Errorf("exit code %d", code)
	}
	harness.Expect(t, w, "+OK\r\n", "LOCK", "a")
}

// Readers run together, and a writer alone.
func TestRunShared(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	w := harness.Dial(t, p.Addr())
	one := startRun(t, p, "echo begin; read line", "--lock", "book", "--shared")
	two := startRun(t, p, "echo begin; read line", "--lock", "book", "--shared", "--wait", "0")
	one.await("begin")
	two.await("begin")
	if code := startRun(t, p, "echo never", "--lock", "book", "--exclusive", "--wait", "0").child.Exit(t); code != 124 {
		t.Errorf("a writer beside readers: exit code %d", code)
	}
	for _, r := range []*runner{one, two} {
		r.says("")
		if code := r.child.Exit(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	harness.Expect(t, w, "+OK\r\n", "WLOCK", "book")
	if code := startRun(t, p, "echo never", "--lock", "book", "--shared", "--wait", "0").child.Exit(t); code != 124 {
		t.Errorf("a reader beside a writer: exit code %d", code)
	}
}

// Two of three run together. The third has the place of one that ends, or that is killed.
func TestRunLimit(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	w := harness.Dial(t, p.Addr())
	flags := []string{"--lock", "export", "--limit", "2"}
	one := startRun(t, p, `echo "begin $LOCKPROXY_TOKEN."; read line`, flags...)
	two := startRun(t, p, "echo begin; read line", append(flags, "--lease", "10s")...)
	one.await("begin .")
	two.await("begin")
	if code := startRun(t, p, "echo never", append(flags, "--wait", "0")...).child.Exit(t); code != 124 {
		t.Errorf("the third of two: exit code %d", code)
	}
	three := startRun(t, p, "echo begin; read line", flags...)
	harness.Eventually(t, "the third waits", func() bool { return harness.WaitingHere(t, w, "export") == 1 })
	one.says("")
	three.await("begin")
	two.child.Kill()
	four := startRun(t, p, "echo begin", flags...)
	four.await("begin")
	three.says("")
	for _, r := range []*runner{one, three, four} {
		if code := r.child.Exit(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	harness.Expect(t, w, ":0\r\n", "EXISTS", "export")
}

// After a short command the lock is kept for as long as it is to be held at least, without anybody who would wait for that.
func TestRunHoldsForAtLeast(t *testing.T) {
	t.Parallel()
	r := testredis.Start(t)
	p := harness.StartProxy(t, r.URL())
	for _, c := range []struct {
		atLeast   string
		from, til time.Duration // what the lock has left
	}{{"1h", 59 * time.Minute, time.Hour}, {"1ms", 0, 0}} {
		run := startRun(t, p, "sleep 0.01; exit 3", "--lock", c.atLeast, "--at-least", c.atLeast)
		if code := run.child.Exit(t); code != 3 {
			t.Errorf("exit code %d", code)
		}
		left := time.Duration(max(0, harness.Number(t, harness.Dial(t, p.Addr()).Do("PTTL", c.atLeast)))) * time.Millisecond
		if left < c.from || left > c.til {
			t.Errorf("--at-least %s: the lock is held for %v more", c.atLeast, left)
		}
	}
}

// What --at-least says is kept, though no proxy is there when the command ends.
func TestRunHoldsForAtLeastWithoutAProxy(t *testing.T) {
	t.Parallel()
	r := testredis.Start(t)
	p := harness.StartProxy(t, r.URL())
	run := startRun(t, p, "echo begin; read line", "--lock", "job", "--lease", "2s", "--at-least", "1h")
	run.await("begin")
	p.Child.Kill()
	run.says("end")
	if code := run.child.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := time.Duration(r.Do(t, "PTTL", "job").(int64)) * time.Millisecond; left < 59*time.Minute {
		t.Errorf("the lock is held for %v more", left)
	}
}

// A user who may not name a connection needs none, for top neither.
func TestRunWithoutAName(t *testing.T) {
	t.Parallel()
	r := testredis.Start(t)
	p := harness.StartProxy(t, r.URL(), "--operators", "job")
	r.Do(t, "ACL", "SETUSER", "job", "on", ">pw", "~*", "&*", "+@all", "-client|setname")
	at := "redis://job:pw@" + p.Addr()
	if code := runAt(t, at, "exit 3").child.Exit(t); code != 3 {
		t.Errorf("exit code %d", code)
	}
	if said, code := top(t, "--once", "--address", at); code != 0 {
		t.Errorf("top: exit code %d: %s", code, said)
	}
}

// A proxy that wants certificates is asked with one, and proves its own name by an authority that the system does not know.
func TestRunWithCertificates(t *testing.T) {
	t.Parallel()
	a := testredis.NewAuthority(t)
	cert, key := a.Issue("127.0.0.1")
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
	harness.StartProxy(t, testredis.Start(t).URL(), "--tls-listen", at, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", a.File, "--operators", "default")
	mine, mineKey := a.Issue("job")
	for _, c := range []struct {
		flags []string
		code  int
	}{
		{[]string{"--tls", "--cacert", a.File, "--cert", mine, "--key", mineKey}, 0},
		{[]string{"--tls", "--cert", mine, "--key", mineKey}, 1}, {[]string{"--tls", "--cacert", a.File}, 1}, {nil, 1},
	} {
		if said, code := top(t, append([]string{"--once", "--address", at}, c.flags...)...); code != c.code {
			t.Errorf("top %q: exit code %d: %s", c.flags, code, said)
		}
		want := map[int]int{0: 7, 1: 125}[c.code]
		if code := runAt(t, at, "exit 7", append([]string{"--wait", "0"}, c.flags...)...).child.Exit(t); code != want {
			t.Errorf("run %q: exit code %d, want %d", c.flags, code, want)
		}
	}
}

// It waits for a proxy that is not there yet, and goes on over another at the same address when its own has died: the lock is held all the
// time.
func TestRunOverAnotherProxy(t *testing.T) {
	t.Parallel()
	url := testredis.Start(t).URL()
	other := harness.StartProxy(t, url)
	nobody := net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
	if code := runAt(t, nobody, "echo never", "--wait", "0").child.Exit(t); code != 125 {
		t.Errorf("no proxy: exit code %d", code)
	}
	port := testredis.FreePort(t)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	r := runAt(t, addr, "echo begin; read line; echo end $line")
	r.await("lockproxy run: ")
	serve := func() *testredis.Child {
		return testredis.StartChild(t, exec.Command(harness.Binary(t), "--listen", addr, "--upstream", url, "--drain-timeout", "100ms"))
	}
	first := serve()
	r.await("begin")

	kept := runAt(t, addr, "echo begin; read line; echo end $line", "--lock", "kept", "--lease", "6s")
	kept.await("begin")
	first.Kill()
	kept.await("lockproxy run: kept: not renewed: ")
	serve()
	w := harness.Dial(t, other.Addr())
	time.Sleep(7 * time.Second) // a lease is over
	harness.Expect(t, w, "$-1\r\n", "LOCK", "kept")
	kept.says("well")
	kept.await("end well")
	if code := kept.child.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	harness.Expect(t, w, "+OK\r\n", "LOCK", "kept")
}

func runAt(t *testing.T, address, script string, flags ...string) *runner {
	t.Helper()
	args := append([]string{"run", "--lock", "job", "--address", address}, flags...)
	if slices.Contains(flags, "--lock") {
		args = append([]string{"run", "--address", address}, flags...)
	}
	return begin(t, exec.Command(harness.Binary(t), append(args, "--", "/bin/sh", "-c", script)...))
}

// A signal goes to the command and all that it has started. One that comes while the lock is waited for ends the wait.
func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	w := harness.Dial(t, p.Addr())
	r := startRun(t, p, `trap "echo stopped; exit 5" TERM; sleep 1000 & echo begin $!; wait`, "--lock", "job")
	sleeps := strings.TrimPrefix(r.await("begin"), "begin ")
	waits := startRun(t, p, "echo never", "--lock", "job")
	harness.Eventually(t, "one waits", func() bool { return harness.WaitingHere(t, w, "job") == 1 })
	waits.signal(syscall.SIGTERM)
	if code := waits.child.Exit(t); code != 128+15 {
		t.Errorf("a wait that was ended: exit code %d", code)
	}
	r.signal(syscall.SIGTERM)
	r.await("stopped")
	if code := r.child.Exit(t); code != 5 {
		t.Errorf("exit code %d", code)
	}
	gone(t, sleeps)
}

// The command is stopped when the lock is lost: it was freed by force, its proxy has gone, or says nothing. One that does not care
// is killed.
func TestRunStopsAtALoss(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	obeys := `trap "echo stopped; exit 0" TERM; echo begin; while :; do sleep 0.1; done`
	forced := startRun(t, p, obeys, "--lock", "forced")
	stubborn := startRun(t, p, `trap "" TERM; echo begin; while :; do sleep 0.1; done`, "--lock", "stubborn", "--lease", "3s")
	left := startRun(t, p, obeys, "--lock", "left", "--lease", "9s")
	for _, r := range []*runner{forced, stubborn, left} {
		r.await("begin")
	}
	w := harness.Dial(t, p.Addr())
	harness.Eventually(t, "it is freed by force", func() bool { return w.Do("UNLOCK", "forced", "FORCE") == ":1\r\n" })
	forced.await("stopped")
	p.Stop()
	stubborn.await("lockproxy run: stubborn: lost while the command ran: ")
	p.Kill()
	left.await("stopped")
	for _, r := range []*runner{forced, stubborn, left} {
		if code := r.child.Exit(t); code != 123 {
			t.Errorf("exit code %d", code)
		}
	}
}

// What the command has started is stopped with it when the lock is lost, also when the command itself ends at once: it has a third of
// the lease, and is killed then.
func TestRunStopsWhatWasStarted(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	for _, c := range []struct{ lock, lease, trap, before string }{
		{"obeys", "1h", `sleep 1; echo stopped; exit`, "stopped"}, // long before it would be killed
		{"stubborn", "3s", ``, ""},
	} {
		t.Run(c.lock, func(t *testing.T) {
			t.Parallel()
			worker := `trap "` + c.trap + `" TERM; echo begin $$; i=0; while [ $i -lt 1800 ]; do sleep 0.1; i=$((i+1)); done`
			r := startRun(t, p, `/bin/sh -c '`+worker+`'; echo done`, "--lock", c.lock, "--lease", c.lease)
			pid := strings.TrimPrefix(r.await("begin"), "begin ")
			w := harness.Dial(t, p.Addr())
			harness.Eventually(t, "it is freed by force", func() bool { return w.Do("UNLOCK", c.lock, "FORCE") == ":1\r\n" })
			r.await(c.before)
			r.await("lockproxy run: " + c.lock + ": lost while the command ran: ")
			if code := r.child.Exit(t); code != 123 {
				t.Errorf("exit code %d", code)
			}
			gone(t, pid)
		})
	}
}

// A command that stands still, as after Ctrl-Z or a read from a terminal that is not its own, is stopped by the signals that end it.
func TestRunEndsWhatStandsStill(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	r := startRun(t, p, `trap "echo stopped; exit 5" TERM; echo begin $$; kill -TTIN $$; echo goes on; while :; do sleep 0.1; done`, "--lock", "job")
	standsStill(t, strings.TrimPrefix(r.await("begin"), "begin "))
	r.signal(syscall.SIGTERM)
	r.await("stopped")
	if code := r.child.Exit(t); code != 5 {
		t.Errorf("exit code %d", code)
	}
}

// standsStill waits until a process is stopped.
func standsStill(t *testing.T, pid string) {
	t.Helper()
	harness.Eventually(t, "the process is stopped", func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
}

func (r *runner) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.child.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *runner) says(line string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Fatal(err)
	}
}

// SIGTSTP, which Ctrl-Z sends, stops the command with `lockproxy run`, which renews no lock then. Both go on together; when the lease
// is over by then the command does not.
func TestRunSuspended(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	script := `trap "" TERM; echo begin $$; while read line; do echo heard $line; done`
	for _, c := range []struct {
		lock, lease string
		ends        bool
	}{{"short", "1h", false}, {"long", "2s", true}} {
		t.Run(c.lock, func(t *testing.T) {
			t.Parallel()
			r := startRun(t, p, script, "--lock", c.lock, "--lease", c.lease)
			pid := strings.TrimPrefix(r.await("begin"), "begin ")
			r.signal(syscall.SIGTSTP)
			standsStill(t, pid)
			standsStill(t, strconv.Itoa(r.child.Cmd.Process.Pid))
			r.says("one")
			if !c.ends {
				r.signal(syscall.SIGCONT)
				r.await("heard one")
				return
			}
			harness.Expect(t, harness.Dial(t, p.Addr()), "+OK\r\n", "LOCK", c.lock, "BLOCK", "0")
			r.signal(syscall.SIGCONT)
			r.await("lockproxy run: long: lost while the command ran: ")
			gone(t, pid)
			if code := r.child.Exit(t); code != 123 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// What nohup(1), or a shell that runs this in the background, has ignored stays ignored, for the command, too.
func TestRunIgnoresWhatWasIgnored(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	script := `echo begin $$; while read line; do echo heard $line; done`
	args := append([]string{"-c", `trap "" HUP INT; exec "$0" "$@"`, harness.Binary(t)}, runs(p, script, "--lock", "job")...)
	r := begin(t, exec.Command("/bin/sh", args...))
	pid, err := strconv.Atoi(strings.TrimPrefix(r.await("begin"), "begin "))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		r.signal(s)
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
	r.says("one")
	r.await("heard one")
}
