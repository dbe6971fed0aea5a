package cluster

// What a SCAN's cursor holds, which no proxy remembers. It is below 2^63, since many clients have it in 64 bits with
// a sign.
//
// From the lowest bit, in classes 0 to 6: class (3 bits), slot (14), mark (12), the node's own cursor (34).
//
// There is less room in class 7, which has these forms for what is seldom needed: 7 (3 bits), form (2), slot (14),
// mark (12), rest (32).
//
//   - asFollowing: the class is 7, the rest the node's own cursor.
//   - inSlotFollowing, inSlotAlone: the class is 7 or 6. The low 14 bits of the node's cursor are the stage's slot, as they are while a
//     node that scans by slot is in it, and the rest is what is above them.
//   - inNode: the class is 0. Slot is the low 14 bits of the node's cursor, and has the same owner as the stage's slot, which is the first of
//     that owner's. The rest is the upper 3 bits of the stage's slot, and what is above the low 14 of the node's cursor (29). If things have
//     changed, and the owner of slot may be another, the scan goes on in class 1 at the slot that these 3 bits make: none before the stage's
//     slot is left out, and at most 2048 are scanned again.
//
// The last three say the same in fewer bits, whatever the node means by its cursor. But a node that scans by slot
// always is in a slot of its own, or in one that is coming to it. They are used where a cursor would reach 2^53
// otherwise, from where on clients that hold numbers in doubles lose some of it. A slot has room in class 0 with up
// to 2^29 buckets, and alone with up to 2^32: the stage of a larger one in class 0 counts as failed.
//
// So a cursor stays below 2^53, as long as nothing moves, for a node up to Redis 7.2 with at most 2^24 buckets,
// which is as many keys, and for one that scans by slot if none of its slots has more than 2^19. Once something has
// moved, in classes 1 to 7, it may reach 2^53 where a node that scans by slot has slots with more than 2^10 buckets:
// it then holds both the stage's slot and the one that the node is in.
const (
	classBits, slotBits, markBits = 3, 14, 12
	nodeBits                      = 63 - classBits - slotBits - markBits
	formBits                      = 2
	restBits                      = nodeBits - formBits
	upperBits                     = 3 // of the stage's slot

	lowerSlots = Slots >> upperBits // what the upper bits of a slot leave open

	doubles = 53 // bits of a whole number that a double holds
)

// The forms that class 7 is written in.
const (
	asFollowing uint64 = iota
	inSlotFollowing
	inSlotAlone
	inNode
)

// position is a cursor taken apart.
type position struct {
	class int
	slot  int    // all below have been scanned
	mark  uint64 // hash of what must not change while the stage lasts
	node  uint64 // the node's cursor; 0: the stage begins
	rough bool   // slot has only the upper bits of the stage's: see unfold
}

func decodeCursor(c uint64) (p position) {
	take := func(bits int) uint64 {
		v := c & (1<<bits - 1)
		c >>= bits
		return v
	}
	p.class = int(take(classBits))
	form := asFollowing
	if p.class == following {
		form = take(formBits)
	}
	low := take(slotBits)
	p.slot, p.mark = int(low), take(markBits)
	switch form {
	case inSlotAlone:
		p.class = finest
	case inNode:
		p.class, p.slot, p.rough = 0, int(take(upperBits))*lowerSlots, true
	}
	if p.node = c; form != asFollowing {
		p.node = c<<slotBits | low
	}
	return p
}

// unfold finds the stage's slot if the cursor has only the upper bits of it. If things have changed, it is the next
// stage's.
func (s *Snapshot) unfold(p position) position {
	if !p.rough {
		return p
	}
	first := s.firstOf(s.Owner(int(p.node % Slots)))
	if p.mark != s.stageAt(position{}, nil).mark || first-first%lowerSlots != p.slot {
		return p.again()
	}
	p.slot, p.rough = first, false
	return p
}

// encode makes the cursor of a position, 0 at the end of the scan. false: the node's cursor is too large for it.
func (s *Snapshot) encode(p position) (cursor uint64, fits bool) {
	if p.slot >= Slots {
		return 0, true
	}
	low, above := p.node%Slots, p.node>>slotBits
	plain, fits := p.plain()
	switch {
	case fits && plain < 1<<doubles:
	case p.class == 0 && s.Owner(int(low)) == s.Owner(p.slot) && above < 1<<(restBits-upperBits):
		return write(inNode, low, p.mark, above<<upperBits|uint64(p.slot/lowerSlots)), true
	case p.class == finest && low == uint64(p.slot) && above < 1<<restBits:
		return write(inSlotAlone, low, p.mark, above), true
	case p.class == following && low == uint64(p.slot) && above < 1<<restBits:
		return write(inSlotFollowing, low, p.mark, above), true
	}
	return plain, fits
}

// plain has the node's cursor as it is.
func (p position) plain() (cursor uint64, fits bool) {
	if p.class == following {
		return write(asFollowing, uint64(p.slot), p.mark, p.node), p.node < 1<<restBits
	}
	return ((p.node<<markBits|p.mark)<<slotBits|uint64(p.slot))<<classBits | uint64(p.class), p.node < 1<<nodeBits
}

// write puts the parts of one of class 7's forms together.
func write(form, slot, mark, rest uint64) uint64 {
	return (((rest<<markBits|mark)<<slotBits|slot)<<formBits|form)<<classBits | following
}
