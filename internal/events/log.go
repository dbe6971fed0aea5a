package events

import (
	"cmp"
	"io"
	"math"
	"slices"
	"sync"
	"time"
)

// Each kind has a ring and bounds of its own, so that none pushes out another: not grants that come by the thousand
// those that are rare, and not what strangers can cause what was lost.
const ringMost, ringBytes = 1024, 512 << 10

// What is kept of a kind in a second: in all, in bytes, and of one lock or address.
const mostInSecond, bytesInSecond, mostOfOne = 250, 256 << 10, 25

// Long says whether a wait, or a hold, took long enough for an event of its own.
func Long(d time.Duration) bool { return d >= time.Second }

// Log is the events of one process. All methods are safe for concurrent use; those of a nil Log do nothing.
type Log struct {
	lines io.Writer // nil: none are written
	proxy string    // what they call this proxy

	mu     sync.Mutex // guards all below; what lines needs is all that is taken within it
	last   uint64     // ID
	byKind [kinds]kept
}

// kept is what is kept of one kind.
type kept struct {
	ring  []Event // the oldest first
	bytes int
	pace  pace
}

// New makes a Log, which writes each event that it keeps as a line of JSON that names the proxy. nil: it writes none.
// lines must not block.
func New(lines io.Writer, proxy string) *Log {
	l := &Log{lines: lines, proxy: proxy}
	for of := range kinds {
		l.byKind[of].pace.bySource = map[string]uint8{}
	}
	return l
}

// Add keeps an event, if there is room for it in this second.
func (l *Log) Add(e Event) {
	if l == nil {
		return
	}
	if (e.Kind == Grant || e.Kind == Busy) && Long(e.Waited) {
		e.Reason = map[Kind]string{Grant: "granted", Busy: "nil"}[e.Kind]
		e.Kind = Wait
	}
	size := e.bound()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginSecond(e.Kind, e.At.Unix())
	if l.byKind[e.Kind].pace.admits(size, e.source()) {
		l.keepEvent(e, size)
	}
}

// keepEvent puts an event into its ring and, as a line, out. mu is held.
func (l *Log) keepEvent(e Event, size int) {
	l.last++
	e.ID, e.At = l.last, e.At.UTC()
	l.byKind[e.Kind].keepInRing(e, size)
	if l.lines != nil {
		e.Proxy = l.proxy
		line, _ := e.MarshalJSON() // it has nothing that JSON has not
		_, _ = l.lines.Write(line) // what is behind lines says by itself what was not written
	}
}

// beginSecond begins another second for a kind, if it is one, and tells how many were left out in the last. mu is held.
func (l *Log) beginSecond(of Kind, second int64) {
	p := &l.byKind[of].pace
	if second == p.second || second == p.second-1 { // who comes with the last one was only a moment late
		return
	}
	end, left := time.Unix(p.second+1, 0), p.left
	clear(p.bySource)
	*p = pace{second: second, bySource: p.bySource}
	if left > 0 {
		l.keepEvent(Event{At: end, Kind: of, More: left}, 256)
	}
}

// tellLeftOut tells how many of each kind were left out before that second. mu is held.
func (l *Log) tellLeftOut(second int64) {
	for of := range kinds {
		l.beginSecond(of, second)
	}
}

// Close tells how many were left out in the present second.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tellLeftOut(math.MaxInt64)
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

// keepInRing keeps an event in the ring. When that is full, the oldest eighth goes at once.
func (k *kept) keepInRing(e Event, size int) {
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

// pace is how much was kept of a kind in the present second.
type pace struct {
	second      int64
	kept, bytes int
	left        int64            // left out
	bySource    map[string]uint8 // kept, by source
}

// admits says whether one more may be kept, and else counts it.
func (p *pace) admits(size int, from string) bool {
	if p.kept >= mostInSecond || p.bytes+size > bytesInSecond || p.bySource[from] >= mostOfOne {
		p.left++
		return false
	}
	p.kept++
	p.bytes += size
	p.bySource[from]++
	return true
}
