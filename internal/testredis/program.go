package testredis

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	newerVariable = "LOCKPROXY_VALKEY"
	programArg    = "program of the server: "
)

// Newer is an argument of Start, StartSet and StartCluster: the servers then run the program that LOCKPROXY_VALKEY names, a Valkey or a
// Redis of version 7.2 or newer. Where it names none, the test is skipped.
func Newer(t testing.TB) (arg string) {
	t.Helper()
	path := os.Getenv(newerVariable)
	if path == "" {
		t.Skipf("*** NOT TESTED: %s, which is to name a valkey-server or a redis-server of 7.2 or newer, is not set ***", newerVariable)
	}
	return programArg + path
}

// programIn is the program that args name, or else the machine's redis-server, and the arguments without it.
func programIn(args []string) (program string, rest []string) {
	program = "redis-server"
	rest = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		path, names := strings.CutPrefix(arg, programArg)
		if names {
			program = path
		}
		return names
	})
	return program, rest
}
