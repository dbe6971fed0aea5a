package locks

import (
	"bufio"
	"io"
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

// Two on one lock run one after the other, also when the first is killed: its command is killed with it, and the next starts at once.
func TestRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	w := harness.Dial(t, p.Addr())
	script := "echo begin $$; read line; echo end $line"
	one := startRun(t, p, script, "--lock", "job")
	line := one.await("begin")
	took := make([]time.Duration, 5)
	for i := range took {
		next := startRun(t, p, script, "--lock", "job", "--wait", "10m")
		harness.Eventually(t, "the next waits", func() bool { return harness.WaitingHere(t, w, "job") == 1 })
		killed := time.Now()
		one.child.Kill()
		began := next.await("begin")
		took[i] = time.Since(killed)
		gone(t, strings.TrimPrefix(line, "begin "))
		one, line = next, began
	}
	slices.Sort(took)
	t.Logf("the next began so long after one was killed: %v", took)
	if median := took[len(took)/2]; median > harness.Bound(100*time.Millisecond) {
		t.Errorf("the next began %v after one was killed", median)
	}
	last := startRun(t, p, script, "--lock", "job", "--fair")
	harness.Eventually(t, "the last waits", func() bool { return harness.WaitingHere(t, w, "job") == 1 })
	one.says("well")
	one.await("end well")
	if code := one.child.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	last.await("begin")
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
	left := startRun(t, p, obeys, "--lock", "left")
	for _, r := range []*runner{forced, stubborn, left} {
		r.await("begin")
	}
	w := harness.Dial(t, p.Addr())
	harness.Eventually(t, "it is freed by force", func() bool { return w.Do("UNLOCK", "forced", "FORCE") == ":1\r\n" })
	forced.await("stopped")
	p.Stop()
	stubborn.await("lockproxy run: the lock stubborn was lost while the command ran: ")
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
			r.await("lockproxy run: the lock " + c.lock + " was lost while the command ran: ")
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
			r.await("lockproxy run: the lock long was lost while the command ran: ")
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
