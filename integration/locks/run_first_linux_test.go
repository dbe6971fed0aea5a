package locks

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// As the first process of a container it asks for the exit codes of what the command has left behind, and after a loss it ends when the
// command has.
func TestRunAsFirstProcess(t *testing.T) {
	t.Parallel()
	namespace := &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID}
	if err := (&exec.Cmd{Path: "/bin/true", SysProcAttr: namespace}).Run(); err != nil {
		t.Skip("no process namespace: ", err)
	}
	p := harness.StartProxy(t, testredis.Start(t).URL())
	script := `(sleep 0.1 & sleep 0.1 & sleep 0.1 &); sleep 1; echo begin; exec sleep 1000`
	cmd := exec.Command(harness.Binary(t), runs(p, script, "--lock", "job", "--lease", "1h")...)
	cmd.SysProcAttr = namespace
	r := begin(t, cmd)
	r.await("begin")
	harness.Eventually(t, "no zombies are left", func() bool { return zombies(t, r.child.Cmd.Process.Pid) == 0 })
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "job", "FORCE")
	if code := r.child.Exit(t); code != 123 {
		t.Errorf("exit code %d", code)
	}
}

// zombies is how many children of a process are dead, and nobody has asked for their exit codes.
func zombies(t *testing.T, parent int) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		stat, _ := os.ReadFile(path) // it may have ended
		if strings.Contains(string(stat), ") Z "+strconv.Itoa(parent)+" ") {
			n++
		}
	}
	return n
}
