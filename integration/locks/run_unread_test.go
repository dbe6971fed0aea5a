package locks

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// unread is a standard error that nobody reads: a full pipe, or one whose reader has gone.
func unread(t *testing.T, noReader bool) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	if noReader {
		_ = r.Close()
		return w
	}
	t.Cleanup(func() { _ = r.Close() })
	for err == nil {
		_ = w.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = w.Write(make([]byte, 1))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return w
}

// What `lockproxy run` says of a loss holds up neither the end of what it has started nor its own, when nobody reads it.
func TestRunStopsAtALossThatNobodyReads(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	for name, noReader := range map[string]bool{"full": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(harness.Binary(t), runs(p, `trap "" TERM; sleep 1000 & echo begin $!; wait`, "--lock", name, "--lease", "3s")...)
			cmd.Stderr = unread(t, noReader)
			r := begin(t, cmd)
			pid := strings.TrimPrefix(r.await("begin"), "begin ")
			w := harness.Dial(t, p.Addr())
			harness.Eventually(t, "it is freed by force", func() bool { return w.Do("UNLOCK", name, "FORCE") == ":1\r\n" })
			if code := r.child.Exit(t); code != 123 {
				t.Errorf("exit code %d", code)
			}
			gone(t, pid)
		})
	}
}
