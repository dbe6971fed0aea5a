package upstream

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// inMemory is the address of a Redis in a bubble.
const inMemory = "10.0.0.1:6379"

// A server that is down for long is told of once, however often it is asked.
func TestUnreachedIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1)
		defer w.Close()
		n := w.NewNode(inMemory)
		n.Kill()
		var log bytes.Buffer
		c := NewControl(Target{Network: "tcp", Addr: n.Addr(), Dialer: w.Proxy("proxy")}, ControlOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 100 {
			if _, err := c.Ints(0, "0000000000000000000000000000000000000000", "return {1}", nil, nil, false); err == nil {
				t.Fatal("answered")
			}
			time.Sleep(time.Minute) // nobody asks for a while, so the pipe is given up
		}
		c.Close() // the log is whole then
		if n := strings.Count(log.String(), "no connection to Redis"); n != 1 {
			t.Errorf("told %d times:\n%s", n, log.String())
		}
	})
}

// Who has read that there is no connection reads when there is one, also if there has never been one before.
func TestReachedAfterAFailedFirstConnect(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Kill()
	var log bytes.Buffer
	c := NewControl(Target{Network: "tcp", Addr: s.Addr()}, ControlOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ask := func() error {
		_, err := c.Ints(0, "0000000000000000000000000000000000000000", "return {1}", nil, nil, false)
		return err
	}
	if ask() == nil {
		t.Fatal("answered")
	}
	s.Restart()
	for end := time.Now().Add(time.Minute); ask() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not answered")
		}
	}
	c.Close() // the log is whole then
	if n := strings.Count(log.String(), "connected to Redis"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
}
