package locks

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A command that has become another user, as by sudo, cannot be stopped when the lock is lost. That is said.
func TestRunSaysWhatItCannotStop(t *testing.T) {
	t.Parallel()
	changer, err := exec.LookPath("setpriv")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs setpriv, and root to make a copy of it that changes its user")
	}
	folder := forEverybody(t)
	sudo, binary := copied(t, changer, folder, 0o755|os.ModeSetuid), copied(t, harness.Binary(t), folder, 0o755)
	p := harness.StartProxy(t, testredis.Start(t).URL())
	cmd := exec.Command(binary, "run", "--address", p.Addr(), "--lock", "job", "--lease", "2s", "--",
		sudo, "--reuid", "0", "--regid", "0", "--clear-groups", "/bin/sh", "-c", `echo begin $(id -u); read line; echo end $line`)
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	r := begin(t, cmd)
	if got := r.await("begin"); got != "begin 0" {
		t.Skipf("a copy of setpriv in %s does not change its user: %s", folder, got)
	}
	w := harness.Dial(t, p.Addr())
	harness.Eventually(t, "it is freed by force", func() bool { return w.Do("UNLOCK", "job", "FORCE") == ":1\r\n" })
	for range 2 { // it is to end, and then to be killed
		r.await("lockproxy run: the command cannot be stopped, it runs as another user")
	}
	r.says("well")
	r.await("end well")
	if code := r.child.Exit(t); code != 123 {
		t.Errorf("exit code %d", code)
	}
}

// forEverybody is a folder that every user may look into.
func forEverybody(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "lockproxy-run")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
		err = os.Chmod(folder, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// copied is a copy of a program in that folder.
func copied(t *testing.T, program, folder string, mode os.FileMode) string {
	t.Helper()
	at := filepath.Join(folder, filepath.Base(program))
	content, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(at, content, 0o600)
	}
	if err == nil {
		err = os.Chmod(at, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return at
}
