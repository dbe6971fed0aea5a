package cluster

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// SCAN goes over the masters that have slots, one after the other in the order of their ids. All it knows is in the
// cursor, so that any proxy can go on with it. From the lowest bit that holds which master it has come to (10 bits), a
// mark of which masters there are (10), and the master's own cursor (43).
//
// Keys whose slot moves meanwhile may come twice, or not at all. When the masters are not those that there were, after
// a failover for one, the scan begins anew at the first: so no master is left out, what was there already comes again,
// and the scan ends once the masters stay the same for as long as it takes. One change in 1024 leaves the mark as it
// was. A master that restarts without a failover invalidates its cursors, as a Redis alone does.
//
// The master stands in the low bits because many clients hold a cursor in 64 bits with a sign, and some in a double,
// which loses what is beyond 2^53. A cursor stays below that up to Redis 7.2, where a node's own is below the number of
// its keys; since Redis 7.4 and Valkey 8, where it is (a place in the table of one slot) << 14 | slot, as long as no
// slot has more than 2^19 keys.
const (
	scanMasterBits, scanMarkBits = 10, 10
	scanOwnBits                  = 63 - scanMasterBits - scanMarkBits
)

const (
	errScanCursor    = "ERR the cursor of this SCAN is too large for a cluster's"
	errInvalidCursor = "ERR invalid cursor"
)

// scanPosition is the cursor of a SCAN taken apart.
type scanPosition struct {
	master int    // which of the masters it has come to
	mark   uint64 // of which masters there are
	own    uint64 // that master's own cursor; 0: its scan begins
}

// scanPositionOf takes a cursor apart.
func scanPositionOf(cursor uint64) scanPosition {
	return scanPosition{int(cursor % (1 << scanMasterBits)), cursor >> scanMasterBits % (1 << scanMarkBits), cursor >> (scanMasterBits + scanMarkBits)}
}

// cursor puts it together; false: a part of it has no room.
func (at scanPosition) cursor() (cursor uint64, fits bool) {
	return (at.own<<scanMarkBits|at.mark)<<scanMasterBits | uint64(at.master), at.master < 1<<scanMasterBits && at.own < 1<<scanOwnBits
}

// after is the cursor of the step that follows, when one of so many masters has answered with its own cursor at a
// position: 0 at the end of the scan. false: there is no room for it.
func (at scanPosition) after(own uint64, masters int) (cursor uint64, fits bool) {
	if at.own = own; own == 0 {
		at.master++
	}
	if at.master == masters {
		return 0, true
	}
	return at.cursor()
}

// scanned are the masters that a SCAN goes over, and their mark.
func (s *Snapshot) scanned() (masters []*Node, mark uint64) {
	masters = slices.SortedFunc(slices.Values(s.nodes), func(a, b *Node) int { return cmp.Compare(a.ID, b.ID) })
	hash := fnv.New64a() // the same in every process
	for _, n := range masters {
		_, _ = fmt.Fprintln(hash, n.ID)
	}
	return masters, hash.Sum64() % (1 << scanMarkBits)
}

// cursor is the cursor of a SCAN as Redis reads it, which also takes an empty word, a sign, and with a minus what is
// left to 2^64. Those from 2^63 on are none of ours. ok is false when it is no number at all: a node says so.
func (p *Plan) cursor() (cursor uint64, ok bool) {
	if len(p.cmd.Args) < 2 {
		return 0, false
	}
	digits := string(p.cmd.Args[1])
	if digits == "" {
		return 0, true
	}
	minus := digits[0] == '-'
	if minus || digits[0] == '+' {
		digits = digits[1:]
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if minus {
		n = -n
	}
	return n, err == nil
}

// planScan makes p a plan of SCAN, or of a command that a node refuses because it has no cursor.
func (p *Plan) planScan() {
	cursor, ok := p.cursor()
	switch {
	case !ok:
		p.kind = atHome
		p.single(noSlot)
	case cursor >= 1<<63:
		p.answer(errInvalidCursor)
	default:
		p.kind, p.whole, p.merge = byCursor, &unit{plan: p}, true
	}
}

// scanStep makes the unit of a SCAN, for the master whose turn it is, and makes it anew when the masters have changed.
func (p *Plan) scanStep(s *Snapshot) {
	masters, mark := s.scanned()
	cursor, _ := p.cursor()
	at := scanPositionOf(cursor)
	if at.mark != mark || at.master >= len(masters) {
		at = scanPosition{mark: mark}
	}
	n := masters[at.master]
	if len(p.units) > 0 && p.units[0].fixed == n && p.at == at {
		return
	}
	p.at, p.masters = at, len(masters)
	words := slices.Clone(p.cmd.Args)
	words[1] = strconv.AppendUint(nil, at.own, 10)
	p.one[0] = unit{plan: p, raw: resp.Command(words), slot: noSlot, fixed: n}
	p.units = p.one[:]
}

// scanReply makes the client's reply of a master's.
func (p *Plan) scanReply(r resp.Reply) []byte {
	n, body, _ := resp.Open(r.Raw)
	if n != 2 {
		return r.Raw
	}
	word, keys := resp.Cut(body)
	said, _ := resp.Outline(word)
	own, err := strconv.ParseUint(string(said.Text), 10, 64)
	next, fits := p.at.after(own, p.masters)
	if err != nil || !fits {
		return resp.AppendError(nil, errScanCursor)
	}
	out := resp.AppendArray(make([]byte, 0, len(r.Raw)+32), 2)
	out = resp.AppendBulkString(out, strconv.FormatUint(next, 10))
	return append(out, keys...)
}
