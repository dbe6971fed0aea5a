package lock

import (
	"log/slog"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// TestLooksAfterASwitch: the look after a switch says why, the next one does not, and one more comes later.
func TestLooksAfterASwitch(t *testing.T) {
	s := &single{only: &shard{}, unsharded: unsharded{node.Subscribers{node.NewSubscriber(nil, node.SubscriberOptions{Warm: 1})}}}
	if got := s.switched.reason(); got != reasonGone || s.switched.due() {
		t.Errorf("without a switch: %q", got)
	}
	s.masterSwitches()
	if got := s.switched.reason(); got != reasonFailover {
		t.Errorf("after a switch: %q", got)
	}
	if got := s.switched.reason(); got != reasonGone {
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

// TestClockAhead: with a new master whose clock is ahead the locks end earlier by that, since Redis keeps when they end, and
// each is believed in no longer.
func TestClockAhead(t *testing.T) {
	m := &Manager{log: slog.New(slog.DiscardHandler), byKey: map[lockstore.LineKey]map[*hold]struct{}{}, timetable: newTimetable()}
	now := time.Now()
	soon, later := &hold{leased: leased{deadline: now.Add(5 * time.Second)}}, &hold{leased: leased{deadline: now.Add(time.Minute)}}
	for i, h := range []*hold{soon, later} {
		m.byKey[lockstore.LineKey{DB: i}] = map[*hold]struct{}{h: {}}
		m.plan(h, h.deadline)
	}
	m.plan(later, now) // somebody wants it looked at
	(&single{m: m}).anotherClock(-time.Hour)
	if !soon.deadline.Equal(now.Add(5*time.Second)) || !soon.next.Equal(soon.deadline) {
		t.Errorf("a clock behind moved a deadline to %v from now", soon.deadline.Sub(now))
	}
	(&single{m: m}).anotherClock(10 * time.Second)
	if want := now.Add(-5 * time.Second); !soon.deadline.Equal(want) || !soon.next.Equal(want) {
		t.Errorf("deadline %v from now, looked at %v from now", soon.deadline.Sub(now), soon.next.Sub(now))
	}
	if !later.deadline.Equal(now.Add(50*time.Second)) || !later.next.Equal(now) {
		t.Errorf("deadline %v from now, looked at %v from now", later.deadline.Sub(now), later.next.Sub(now))
	}
}
