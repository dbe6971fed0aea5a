package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// A cluster that is down for long is told of when that begins and when it ends, however often its topology is looked at.
func TestAClusterThatIsDownIsToldOfOnce(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--cluster-enabled yes")
	s.Do(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	var log logged
	target := upstream.ClusterTarget{Seeds: []string{s.Addr()}, Node: upstream.Target{Network: "tcp"}}
	c := openTarget(t, target, Options{Node: upstream.NodeOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	said := func(unreached, looks, known, again int) {
		t.Helper()
		for words, want := range map[string]int{"no connection to Redis": unreached, "could not be refreshed": looks, "is known again": known, "connected to Redis": again} {
			if n := strings.Count(log.String(), words); n != want {
				t.Errorf("%q %d times, want %d", words, n, want)
			}
		}
	}
	s.Kill()
	for range 6 {
		c.Refreshed(context.Background())
	}
	said(1, 1, 0, 0)
	s.Restart()
	for end := time.Now().Add(time.Minute); strings.Count(log.String(), "is known again") == 0 || strings.Count(log.String(), "connected to Redis") == 0; time.Sleep(10 * time.Millisecond) {
		if c.Refresh(); time.Now().After(end) {
			t.Fatal(fmt.Sprint("it is not known again:\n", log.String()))
		}
	}
	said(1, 1, 1, 1)
}
