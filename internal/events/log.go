package events

import (
	"cmp"
	"hash/maphash"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Each kind has a ring and bounds of its own, so that none pushes out another: not grants that come by the thousand
// those that are rare, and not what strangers can cause what was lost.
const (
	ringMost, ringBytes = 1024, 512 << 10
	flushEvery          = 100 * time.Millisecond // for lines to come together
)

// What is kept of a kind in a second, in all, in bytes, and of one lock or address.
var (
	inRing  = bound{50, 64 << 10, 5}
	inLines = bound{1000, 1 << 20, 200}
)

// Log is the events of one process. All methods are safe for concurrent use; those of a nil Log do nothing.
type Log struct {
	long  atomic.Int64 // what takes longer has taken long
	lines io.Writer    // nil: none are written

	mu      sync.Mutex // a leaf; guards all below
	last    uint64     // ID
	byKind  [kinds]kept
	pending []Event // that are still to be written
	late    *time.Timer
	armed   bool // late runs
}

// kept is what is kept of one kind.
type kept struct {
	ring    []Event // the oldest first
	bytes   int
	inRing  pace
	inLines pace
}

// New makes a Log. Each line that it writes is an event in JSON; several may come in one call. lines must not block.
func New(lines io.Writer) *Log {
	l := &Log{lines: lines}
	l.late = time.AfterFunc(time.Hour, l.write)
	l.late.Stop()
	return l
}

// SetLong says from when on a wait, or a hold, is long.
func (l *Log) SetLong(d time.Duration) { l.long.Store(int64(d)) }

// Long says whether something took long enough for an event of its own.
func (l *Log) Long(d time.Duration) bool { return l != nil && int64(d) >= l.long.Load() }

// Add keeps an event, if there is room for it in this second.
func (l *Log) Add(e Event) {
	if l == nil {
		return
	}
	if (e.Kind == Grant || e.Kind == Busy) && l.Long(e.Waited) {
		e.Reason = map[Kind]string{Grant: "granted", Busy: "nil"}[e.Kind]
		e.Kind = Wait
	}
	size := e.bound()
	from := uint8(maphash.String(seed, e.source()))
	l.mu.Lock()
	defer l.mu.Unlock()
	k, second := &l.byKind[e.Kind], e.At.Unix()
	l.over(e.Kind, second)
	l.last++
	e.ID = l.last
	if k.inRing.admits(inRing, size, from) {
		k.add(e, size)
	}
	if l.lines != nil && k.inLines.admits(inLines, size, from) {
		l.pending = append(l.pending, e)
	}
	l.arm()
}

var seed = maphash.MakeSeed()

// over begins another second for a kind, if it is one, and tells how many were left out in the last. mu is held.
func (l *Log) over(of Kind, second int64) {
	k := &l.byKind[of]
	if now := k.inRing.second; second == now || second == now-1 { // who comes with the last one was only a moment late
		return
	}
	end := time.Unix(k.inRing.second+1, 0)
	ring, lines := k.inRing.next(second), k.inLines.next(second)
	if ring > 0 {
		l.last++
		k.add(Event{ID: l.last, At: end, Kind: of, More: ring}, 256)
	}
	if lines > 0 {
		l.pending = append(l.pending, Event{ID: l.last, At: end, Kind: of, More: lines})
	}
}

// arm has write called soon. mu is held.
func (l *Log) arm() {
	if !l.armed {
		l.armed = true
		l.late.Reset(flushEvery)
	}
}

// Close writes what is still to be written, and how many were left out in the present second.
func (l *Log) Close() {
	l.late.Stop()
	l.flush(math.MaxInt64)
}

// write writes what has come together. The timer calls it.
func (l *Log) write() { l.flush(time.Now().Unix()) }

// flush is write in that second.
func (l *Log) flush(second int64) {
	l.mu.Lock()
	owes := l.tellLeftOut(second)
	pending := l.pending
	l.pending, l.armed = nil, false
	if owes {
		l.arm()
	}
	l.mu.Unlock()
	if len(pending) == 0 {
		return
	}
	text := make([]byte, 0, 256*len(pending))
	for i := range pending {
		text = append(pending[i].AppendJSON(text), '\n')
	}
	_, _ = l.lines.Write(text) // it says by itself what was not written
}

// tellLeftOut tells how many of each kind were left out before that second. owes: in that second some were, too. mu is
// held.
func (l *Log) tellLeftOut(second int64) (owes bool) {
	for of := range kinds {
		if l.over(of, second); l.byKind[of].inRing.left > 0 {
			owes = true
		}
	}
	return owes
}

// Latest are the last events of a kind, "" is any, that are meant, the newest first, and so many at most.
func (l *Log) Latest(most int, kind string, meant func(*Event) bool) (all []Event) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.tellLeftOut(time.Now().Unix())
	for of := range kinds {
		if kind != "" && of.String() != kind {
			continue
		}
		ring := l.byKind[of].ring
		for i := range ring {
			if meant(&ring[i]) {
				all = append(all, ring[i])
			}
		}
	}
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b Event) int { return cmp.Compare(b.ID, a.ID) })
	return all[:min(most, len(all))]
}

// add keeps an event in the ring. When that is full, the oldest eighth goes at once.
func (k *kept) add(e Event, size int) {
	if k.bytes += size; len(k.ring) >= ringMost || k.bytes > ringBytes {
		gone, most := 0, len(k.ring)/8
		for gone < len(k.ring) && (gone <= most || k.bytes > ringBytes) {
			k.bytes -= k.ring[gone].bound()
			gone++
		}
		k.ring = slices.Delete(k.ring, 0, gone)
	}
	k.ring = append(k.ring, e)
}

// bound is what is kept in one second.
type bound struct{ most, bytes, ofOne int }

// pace is how much of it was kept in the present one.
type pace struct {
	second      int64
	kept, bytes int
	left        int64      // left out
	bySource    [256]uint8 // kept, by a part of the source's hash
}

// admits says whether one more may be kept, and else counts it.
func (p *pace) admits(b bound, size int, from uint8) bool {
	if p.kept >= b.most || p.bytes+size > b.bytes || int(p.bySource[from]) >= b.ofOne {
		p.left++
		return false
	}
	p.kept++
	p.bytes += size
	p.bySource[from]++
	return true
}

// next begins a second, and returns how many were left out before.
func (p *pace) next(second int64) (left int64) {
	left = p.left
	*p = pace{second: second}
	return left
}
