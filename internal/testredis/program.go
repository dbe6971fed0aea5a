package testredis

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// programVariable names the program that all servers of the tests run, if it is not the machine's redis-server: another redis-server, or
// a valkey-server.
const programVariable = "TESTREDIS_SERVER"

func program() string {
	if named := os.Getenv(programVariable); named != "" {
		return named
	}
	return "redis-server"
}

// AtLeast says whether the servers of the tests have this version, or a newer one. The first Valkey was 7.2.
func AtLeast(t testing.TB, major, minor int) bool {
	t.Helper()
	has, err := version()
	if err != nil {
		t.Fatal(err)
	}
	return has[0] > major || has[0] == major && has[1] >= minor
}

// NeedsAtLeast skips the test of what older servers have not.
func NeedsAtLeast(t testing.TB, major, minor int) {
	t.Helper()
	NeedsProcesses(t)
	if !AtLeast(t, major, minor) {
		t.Skipf("needs a server of %d.%d or newer, which `make newer` names in %s", major, minor, programVariable)
	}
}

// Valkey says whether the servers of the tests are Valkeys.
func Valkey() bool {
	says, err := self()
	return err == nil && strings.HasPrefix(says, "Valkey ")
}

// self is what the program says of itself.
var self = sync.OnceValues(func() (string, error) {
	says, err := exec.Command(program(), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("testredis: %s --version: %w", program(), err)
	}
	return string(says), nil
})

func version() (has [2]int, err error) {
	says, err := self()
	if err != nil {
		return has, err
	}
	return parseVersion(says)
}

// parseVersion reads "Redis server v=8.2.3 sha=…".
func parseVersion(says string) (has [2]int, err error) {
	var name string
	if _, err := fmt.Sscanf(says, "%s server v=%d.%d.", &name, &has[0], &has[1]); err != nil {
		return has, fmt.Errorf("testredis: %q tells no version: %w", says, err)
	}
	return has, nil
}
