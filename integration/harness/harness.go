// Package harness is what the tests of whole processes share: the lockproxy under test, raw connections to it and what comes
// back over them, and the programs of other languages, which are built outside the repository.
package harness

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	if err := lookAtSource(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "lockproxy-integration-")
	if err != nil {
		return "", err
	}
	folder = dir
	file := filepath.Join(dir, "lockproxy")
	args := []string{"build", "-o", file}
	if RaceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "github.com/lockproxy/lockproxy/cmd/lockproxy")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building lockproxy: %w\n%s", err, out)
	}
	return file, nil
})

// lookAtSource looks at each file that a lockproxy may be built from. The go command writes down what a test looks at, and
// takes no result from its cache once that has changed: without it the tests of a binary would be "ok (cached)" for code
// that they do not link.
func lookAtSource() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
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
