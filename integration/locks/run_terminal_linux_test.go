package locks

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// newTerminal makes a terminal: what is written to keyboard is typed at it.
func newTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	if err = unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return keyboard, terminal
}

// In a pipeline that is typed at a terminal the command may ask there for a password, and Ctrl-C reaches it.
func TestRunAtATerminal(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	script := `trap "echo stopped; exit 5" INT; read word </dev/tty; echo begin $word; while :; do sleep 0.1; done`
	cmd := exec.Command(harness.Binary(t), runs(p, script, "--lock", "job")...)
	keyboard, terminal := newTerminal(t)
	const ours = 3 // the first of ExtraFiles, in the child
	cmd.ExtraFiles = []*os.File{terminal}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: ours}
	r := begin(t, cmd)
	for _, c := range []struct{ typed, begins string }{{"secret\n", "begin secret"}, {"\x03", "stopped"}} {
		if _, err := io.WriteString(keyboard, c.typed); err != nil {
			t.Fatal(err)
		}
		if got := r.await(strings.Fields(c.begins)[0]); got != c.begins {
			t.Errorf("%q was typed: %q", c.typed, got)
		}
	}
	if code := r.child.Exit(t); code != 5 {
		t.Errorf("exit code %d", code)
	}
}
