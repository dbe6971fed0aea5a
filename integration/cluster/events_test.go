package cluster

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// payload is a message's last element.
func payload(frame string) string {
	_, elements := harness.Split(frame)
	_, text, _ := strings.Cut(elements[len(elements)-1], "\r\n")
	return strings.TrimSuffix(text, "\r\n")
}

// message reads the next one that is not of the locks with which the proxy and AwaitProbe have begun: nodes pass messages on late.
func (s *subscriber) message() string {
	s.t.Helper()
	for {
		if got := s.Read(); !strings.Contains(got, "lockproxy_probe:") && !strings.Contains(got, "{try-") {
			return got
		}
	}
}

// heardKeys reads messages until those of all the keys have come, and wants each once.
func heardKeys(t *testing.T, s *subscriber, keys map[string]bool) {
	t.Helper()
	for left := maps.Clone(keys); len(left) > 0; {
		key := payload(s.message())
		if !left[key] {
			t.Fatalf("%q came twice, or was not changed", key)
		}
		delete(left, key)
	}
}

// deleteAll makes and deletes keys of all masters.
func deleteAll(t *testing.T, w *harness.Wire, run int) map[string]bool {
	t.Helper()
	keys := map[string]bool{}
	for i := range 30 {
		key := fmt.Sprintf("k:%d:%d", run, i)
		keys[key] = true
		harness.Expect(t, w, ok, "SET", key, "v")
		harness.Expect(t, w, ":1\r\n", "DEL", key)
	}
	return keys
}

// Keyspace notifications are told by each key's own master: they come from all of them, each once, and other messages once, too,
// also after a move of slots. When the masters change those who listen are closed, and subscribe anew.
func TestClusterKeyspaceEvents(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1, "--notify-keyspace-events", "Eg")
	p := harness.StartClusterProxy(t, tc)
	w := harness.Dial(t, p.Addr())
	byName, byAll := subscribers(t, p.Addr()), subscribers(t, p.Addr())
	for _, s := range byName {
		s.Send("SUBSCRIBE", "__keyevent@0__:del", "news")
		s.confirmed("subscribe", "__keyevent@0__:del", 1)
		s.confirmed("subscribe", "news", 2)
	}
	for _, s := range byAll {
		s.Send("PSUBSCRIBE", "*")
		s.confirmed("psubscribe", "*", 1)
	}
	run := 0
	whole := func() {
		t.Helper()
		keys := deleteAll(t, w, run)
		for _, s := range append(byName, byAll...) {
			heardKeys(t, s, keys)
		}
		long := strings.Repeat("x", 300_000)
		for _, text := range []string{fmt.Sprint("text", run), long} {
			w.Do("PUBLISH", "news", text)
			for _, s := range append(byName, byAll...) {
				if got := s.message(); !strings.HasSuffix(got, "\r\n"+text+"\r\n") {
					t.Fatalf("instead of a message: %.200q", got)
				}
			}
		}
		run++
	}
	whole()
	whole()

	slot := slots.Slot([]byte("k:0:0"))
	from, err := tc.Owner(slot)
	if err != nil {
		t.Fatal(err)
	}
	to := tc.Servers[1]
	if to == from {
		to = tc.Servers[2]
	}
	if err := tc.MoveSlot(slot, from, to); err != nil {
		t.Fatal(err)
	}
	whole()

	for _, s := range byName {
		s.Send("UNSUBSCRIBE", "__keyevent@0__:del")
		if got := s.message(); !strings.Contains(got, "unsubscribe") {
			t.Errorf("got %q", got)
		}
	}
	deleteAll(t, w, run)
	w.Do("PUBLISH", "news", "last")
	for _, s := range byName {
		if got := payload(s.message()); got != "last" {
			t.Errorf("after UNSUBSCRIBE: %q", got)
		}
	}
	if err := tc.Failover(tc.Servers[3]); err != nil {
		t.Fatal(err)
	}
	for _, s := range byAll {
		for { // what came before
			if _, err := s.TryRead(harness.Patience); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("one that listens is still there after a failover")
			} else if err != nil {
				break
			}
		}
	}
	for _, s := range byName {
		hears(t, w, []*subscriber{s}, "PUBLISH", "news")
	}
}
