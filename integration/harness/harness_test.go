package harness

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestBinary(t *testing.T) {
	out, err := exec.Command(Binary(t), "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "lockproxy ") {
		t.Fatalf("%v: %s", err, out)
	}
}

// A test that runs the binary links none of its code: the go command must still not answer from its cache when that code has
// changed. TestBinary is such a test.
func TestResultsAreNeverStale(t *testing.T) {
	testredis.NeedsProcesses(t)
	cached := func() bool {
		t.Helper()
		cmd := exec.Command("go", "test", "-vet=off", "-run", "^TestBinary$", ".")
		cmd.Env = append(os.Environ(), "GOFLAGS="+strings.ReplaceAll(os.Getenv("GOFLAGS"), "-count=1", "")) // which uses no cache
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Contains(string(out), "(cached)")
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "internal", "session", "*.go"))
	if err != nil || files == nil {
		t.Fatalf("%q, %v", files, err)
	}
	file := files[0]
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	for runs := 1; !cached(); runs++ { // not for so long: one run takes half a minute on a busy machine
		if runs == 10 {
			t.Fatalf("the result is not kept although nothing changes: %d runs", runs)
		}
	}
	// The go command judges a file that a test has looked at by its size and time. The content stays: others build from it. The time
	// is one of which no earlier run of this test can have left a result.
	if err := os.Chtimes(file, time.Time{}, before.ModTime().Add(-rand.N(1000*time.Hour))); err != nil {
		t.Fatal(err)
	}
	stale := cached()
	if err := os.Chtimes(file, time.Time{}, before.ModTime()); err != nil {
		t.Fatal(err)
	}
	if stale {
		t.Errorf("%s has changed, and the result is of before", file)
	}
}
