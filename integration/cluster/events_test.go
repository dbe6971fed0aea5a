package cluster

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

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

// until gives the payloads that come before last, which is published again when nothing comes: what is published while a connection
// gives way to another is lost.
func (s *subscriber) until(w *harness.Wire, last string) (before []string) {
	s.t.Helper()
	w.Do("PUBLISH", "news", last)
	for end := time.Now().Add(harness.Patience); time.Now().Before(end); {
		if s.Silent(time.Second) {
			w.Do("PUBLISH", "news", last)
		} else if got := payload(s.Read()); got == last {
			return before
		} else {
			before = append(before, got)
		}
	}
	s.t.Fatalf("never: %q", last)
	return nil
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

// Keyspace notifications are told by each key's own master: they come from all of them, each once, and other messages once, too;
// through a failover and a move of slots.
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

	// The connections follow the topology a moment later: then nothing is missing, and nothing comes twice.
	settled := func(what string) {
		t.Helper()
		for _, s := range append(byName, byAll...) {
			harness.Eventually(t, what, func() bool {
				keys := map[string]int{}
				for key := range deleteAll(t, w, run) {
					keys[key] = 0
				}
				run++
				for _, key := range append(s.until(w, fmt.Sprint("end", run)), s.until(w, fmt.Sprint("end of all", run))...) {
					if _, ours := keys[key]; ours {
						keys[key]++
					}
				}
				for _, n := range keys {
					if n != 1 {
						return false
					}
				}
				return true
			})
		}
	}
	if err := tc.Failover(tc.Servers[3]); err != nil {
		t.Fatal(err)
	}
	settled("all masters after a failover")
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
	settled("all masters after a move")

	for _, s := range byName {
		s.Send("UNSUBSCRIBE", "__keyevent@0__:del")
		for !strings.Contains(s.message(), "unsubscribe") { // what the others' turns have left behind
		}
	}
	harness.Eventually(t, "no master tells of keys any more", func() bool {
		deleteAll(t, w, run)
		run++
		quiet := true
		for _, s := range byName {
			for _, got := range s.until(w, fmt.Sprint("last", run)) {
				quiet = quiet && !strings.HasPrefix(got, "k:")
			}
		}
		return quiet
	})
}
