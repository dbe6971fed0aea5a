package cluster

import (
	"math/rand/v2"
	"testing"
)

// thirds is a cluster of three masters with a third of the slots each.
func thirds() *Snapshot {
	s := &Snapshot{whole: true, epochs: map[*Node]int64{}}
	for i, id := range []string{"a", "b", "c"} {
		n := &Node{ID: id}
		s.Masters, s.epochs[n] = append(s.Masters, n), int64(i+1)
		for slot := Slots * i / 3; slot < Slots*(i+1)/3; slot++ {
			s.give(slot, n)
		}
	}
	s.stamp = s.fingerprint()
	return s
}

// inSlot is the cursor of a node that scans by slot.
func inSlot(slot int, place uint64) uint64 { return place<<slotBits | uint64(slot) }

// A position is what it was when its cursor comes back, and stays below 2^53 where that is promised.
func TestCursor(t *testing.T) {
	t.Parallel()
	s := thirds()
	second := Slots / 3 // the first slot of the second node
	mark, most := s.stageAt(position{}, nil).mark, uint64(1<<markBits-1)
	for name, c := range map[string]struct {
		p       position
		fits    bool
		doubles bool // can bear it
	}{
		"the beginning":                {position{}, true, true},
		"a node's beginning":           {position{slot: second, mark: mark}, true, true},
		"one table":                    {position{slot: second, mark: mark, node: 1<<24 - 1}, true, true},
		"one table, larger":            {position{slot: second, mark: mark, node: 1<<32 - 1}, true, false},
		"one table, a slot of its own": {position{slot: second, mark: mark, node: inSlot(second+1, 1<<18-1)}, true, true},
		"by slot":                      {position{slot: second, mark: mark, node: inSlot(2*second-1, 1<<19-1)}, true, true},
		"by slot, larger":              {position{slot: second, mark: mark, node: inSlot(second, 1<<29-1)}, true, false},
		"by slot, too large":           {position{slot: second, mark: mark, node: inSlot(second, 1<<29)}, false, false},
		"by slot, of another node":     {position{slot: second, mark: mark, node: inSlot(0, 1<<20-1)}, true, false},
		"by slot, of another, large":   {position{slot: second, mark: mark, node: inSlot(0, 1<<20)}, false, false},
		"a stage's beginning":          {position{class: 3, slot: 5, mark: 9}, true, true},
		"a stage":                      {position{class: 3, slot: 5, mark: most, node: 1<<24 - 1}, true, true},
		"a larger stage":               {position{class: 3, slot: 5, mark: most, node: 1<<34 - 1}, true, false},
		"a stage that is too large":    {position{class: 3, slot: 5, mark: most, node: 1 << 34}, false, false},
		"a slot alone":                 {position{class: 6, slot: Slots - 1, mark: most, node: inSlot(Slots-1, 1<<22-1)}, true, true},
		"a large slot alone":           {position{class: 6, slot: Slots - 1, mark: most, node: inSlot(Slots-1, 1<<32-1)}, true, false},
		"another slot, large":          {position{class: 6, slot: Slots - 1, mark: most, node: inSlot(1, 1<<20)}, false, false},
		"following":                    {position{class: 7, slot: Slots - 1, mark: most, node: 1<<22 - 1}, true, true},
		"following, one table":         {position{class: 7, slot: 5, mark: most, node: 1<<32 - 1}, true, false},
		"following in a slot":          {position{class: 7, slot: 7, mark: most, node: inSlot(7, 1<<22-1)}, true, true},
		"following in a large slot":    {position{class: 7, slot: 7, mark: most, node: inSlot(7, 1<<32-1)}, true, false},
		"following in another slot":    {position{class: 7, slot: 7, mark: most, node: inSlot(6, 1<<18)}, false, false},
	} {
		cursor, fits := s.encode(c.p)
		if fits != c.fits {
			t.Errorf("%s: fits %v", name, fits)
		}
		if !fits {
			continue
		}
		if got := s.unfold(decodeCursor(cursor)); got != c.p || cursor >= 1<<63 || (cursor < 1<<53) != c.doubles {
			t.Errorf("%s: %+v, is %d, %+v", name, c.p, cursor, got)
		}
	}
	if cursor, fits := s.encode(position{class: 1, slot: Slots}); cursor != 0 || !fits {
		t.Errorf("the end is %d", cursor)
	}
}

// A cursor with a part of the stage's slot goes on, when things have changed, at no later slot than the stage's.
func TestCursorWhoseSlotIsNotKnown(t *testing.T) {
	t.Parallel()
	s := thirds()
	first := Slots / 3
	cursor, fits := s.encode(position{slot: first, mark: s.stageAt(position{}, nil).mark, node: inSlot(first+300, 1<<25)})
	if !fits || !decodeCursor(cursor).rough {
		t.Fatal("it has the whole slot")
	}
	for name, c := range map[string]struct {
		moved  int // slots of the second node that the first one has now
		marked bool
	}{
		"the slot that the node was in":                {400, true},
		"slots ahead of it":                            {200, true},
		"one change in 4096 leaves the mark unchanged": {400, false},
	} {
		changed := thirds()
		for slot := first; slot < first+c.moved; slot++ {
			changed.give(slot, changed.Owner(0))
		}
		if changed.stamp = s.stamp; c.marked {
			changed.stamp = changed.fingerprint()
		}
		got := changed.unfold(decodeCursor(cursor))
		if got.class != 1 || got.rough || got.node != 0 || got.slot > first || got.slot <= first-lowerSlots {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// Whatever a client sends is a position: a cursor may be of another version, or of no proxy's.
func TestAnyCursorIsAPosition(t *testing.T) {
	t.Parallel()
	s := thirds()
	for i := range 20000 {
		c := rand.Uint64() >> (1 + i%63)
		p := s.unfold(decodeCursor(c))
		if p.rough || p.slot < 0 || p.slot >= Slots || p.class > following {
			t.Fatalf("%d: %+v", c, p)
		}
		if p.class != following {
			s.stageAt(p, nil)
		}
		if again, fits := s.encode(p); fits && s.unfold(decodeCursor(again)) != p && p.class != 0 {
			t.Fatalf("%d: %+v is %d, %+v", c, p, again, s.unfold(decodeCursor(again)))
		}
	}
}
