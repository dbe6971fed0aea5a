package sharded

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// TestLooksAfterASwitch: the look after a switch says why, the next one does not, and one more comes later.
func TestLooksAfterASwitch(t *testing.T) {
	s := &single{only: &shard{}, Subscribers: node.Subscribers{node.NewSubscriber(nil, node.SubscriberOptions{})}}
	if got := s.switched.reason(); got != lockstore.Gone || s.switched.due() {
		t.Errorf("without a switch: %q", got)
	}
	s.masterSwitches()
	if got := s.switched.reason(); got != lockstore.Failover {
		t.Errorf("after a switch: %q", got)
	}
	if got := s.switched.reason(); got != lockstore.Gone {
		t.Errorf("at the next look: %q", got)
	}
	if s.switched.due() {
		t.Error("the second look comes with the first")
	}
	s.switched.again = time.Now()
	if !s.switched.due() || s.switched.due() {
		t.Error("the second look comes once")
	}
}

// TestClockBehind: a new master whose clock is behind has locks last longer, which nobody relies on.
func TestClockBehind(t *testing.T) {
	var by []time.Duration
	h := lockstore.Host{Log: slog.New(slog.DiscardHandler), Shorten: func(d time.Duration, _ time.Time, _ func(string) bool) { by = append(by, d) }}
	s := &single{host: h}
	s.anotherClock(node.Jump{By: -time.Hour})
	s.anotherClock(node.Jump{By: 10 * time.Second})
	if !slices.Equal(by, []time.Duration{10 * time.Second}) {
		t.Errorf("shortened by %v", by)
	}
}
