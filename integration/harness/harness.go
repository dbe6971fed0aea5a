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
	"testing"
)

// Binary is the path of the lockproxy under test, built by Main. It has the race detector in when the tests have.
var Binary string

// Main builds lockproxy and runs the tests of a package; it returns the exit code.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lockproxy-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	Binary = filepath.Join(dir, "lockproxy")
	args := []string{"build", "-o", Binary}
	if RaceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/lockproxy/lockproxy/cmd/lockproxy")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building lockproxy:", err)
		return 1
	}
	return m.Run()
}

// Asked says that -run names these tests: they install packages and take minutes, which nobody wants from ./... .
func Asked() bool { return strings.Contains(flag.Lookup("test.run").Value.String(), "Interop") }

// MainIfAsked is Main for packages that have such tests; lockproxy is built only when they are asked for.
func MainIfAsked(m *testing.M) int {
	if !Asked() {
		return m.Run()
	}
	return Main(m)
}
