package testredis

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports are taken from below the range that systems hand to outgoing connections
// (from 32768 on Linux): a server that is down for a moment then finds its port
// still free.
const (
	firstPort = 21000
	lastPort  = 31000
)

// FreePort finds a loopback TCP port on which nothing listens and that no other
// test is given for as long as this test binary runs.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func freePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if !reserve(port) {
			continue
		}
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		_ = ln.Close()
		return port, nil
	}
	return 0, errors.New("testredis: no free port found")
}
