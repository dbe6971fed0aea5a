package upstream

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A server that is down for long is told of once, however often it is asked.
func TestUnreachedIsToldOnce(t *testing.T) {
	s := testredis.Start(t)
	s.Kill()
	var log bytes.Buffer
	c := NewControl(Target{Network: "tcp", Addr: s.Addr()}, ControlOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 8 {
		if _, err := c.Ints(0, "0000000000000000000000000000000000000000", "return {1}", nil, nil); err == nil {
			t.Fatal("answered")
		}
		time.Sleep(150 * time.Millisecond) // nobody asks for a while, so the pipe is given up
	}
	c.Close() // the log is whole then
	if n := strings.Count(log.String(), "no connection to Redis"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
}
