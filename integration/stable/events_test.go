package stable

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

var lossReason = regexp.MustCompile(`(?m)^\treason\w+\s*= (?:"([a-z-]+)"|lockstore\.(\w+))`)

// lossReasons are why a lock may be lost, as clients are told.
func lossReasons(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "internal", "lock", "loss.go"))
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]string{"Gone": lockstore.Gone, "Clock": lockstore.Clock, "Failover": lockstore.Failover}
	for _, found := range lossReason.FindAllSubmatch(text, -1) {
		reason := string(found[1]) + of[string(found[2])]
		if reason == "" {
			t.Errorf("a reason is not known: %s", found[0])
		}
		all = append(all, reason)
	}
	slices.Sort(all)
	return all
}

// TestEvents: the kinds of events, the fields of their lines, and the reasons of a loss.
func TestEvents(t *testing.T) {
	t.Parallel()
	var now []string
	for _, kind := range slices.Sorted(slices.Values(events.Kinds())) {
		now = append(now, "event "+kind)
	}
	event := filled[events.Event]()
	event.Kind = events.Loss
	line, err := event.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fieldsIn(t, line) {
		now = append(now, "field "+field)
	}
	for _, reason := range lossReasons(t) {
		now = append(now, "reason of a loss "+reason)
	}
	hold(t, "events", now)
}
