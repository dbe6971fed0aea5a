// Package harness is what the tests of whole processes share: the lockproxy under test, raw connections to it and what comes
// back over them, and the programs of other languages, which are built outside the repository.
package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// folder has what Binary builds; "" until then. Main removes it.
var folder string

// Main runs the tests of a package, and removes what Binary has built for them; it returns the exit code.
func Main(m *testing.M) int {
	defer func() { _ = os.RemoveAll(folder) }() // "" is nothing
	return m.Run()
}

// Binary is the path of the lockproxy under test, which the first call builds. It has the race detector in when the tests have.
func Binary(t testing.TB) string {
	t.Helper()
	testredis.NeedsProcesses(t)
	file, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

var build = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if err := lookAtSource(root); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "lockproxy-integration-")
	if err != nil {
		return "", err
	}
	folder = dir
	file := filepath.Join(dir, "lockproxy")
	return file, linkOnce(root, file)
})

// linkOnce builds lockproxy and puts it at file. The go command keeps no linked binary, but lets one that is up to date be:
// so there is one for each tree of sources, which all packages of tests copy.
func linkOnce(root, file string) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(root))
	kept := filepath.Join(cache, "lockproxy-test", hex.EncodeToString(sum[:6]))
	args := []string{"build", "-ldflags=-w", "-o", filepath.Join(kept, "lockproxy")} // without a debugger's tables, as the Makefile links tests
	if RaceEnabled {
		args[3] += "-race"
		args = append(args, "-race")
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return err
	}
	release, err := lockFile(filepath.Join(kept, "lock"))
	if err != nil {
		return err
	}
	defer release()
	if out, err := exec.Command("go", append(args, "github.com/lockproxy/lockproxy/cmd/lockproxy")...).CombinedOutput(); err != nil {
		return fmt.Errorf("building lockproxy: %w\n%s", err, out)
	}
	return copyFile(args[3], file)
}

// lockFile waits for its turn among the processes that want the same file locked.
func lockFile(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// lookAtSource looks at each file that a lockproxy may be built from. The go command writes down what a test looks at, and
// takes no result from its cache once that has changed: without it the tests of a binary would be "ok (cached)" for code
// that they do not link.
func lookAtSource(root string) error {
	return filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "docs" || name == "integration"):
			return filepath.SkipDir
		case entry.IsDir() || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		switch filepath.Ext(name) {
		case ".go", ".lua", ".mod", ".sum", ".html", ".json":
			_, err = os.Stat(path)
		}
		return err
	})
}

// moduleRoot is the folder of go.mod, above the one that tests run in.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("there is no go.mod here or above")
		}
	}
}

// Asked says that -run names these tests: they install packages and take minutes, which nobody wants from ./... .
func Asked() bool { return strings.Contains(flag.Lookup("test.run").Value.String(), "Interop") }
