package world

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// World is everything outside the proxies: the servers, the wires, and the order in which things happen there.
type World struct {
	seed  uint64
	start time.Time // chance follows from the time since then

	mu     sync.Mutex // guards all below, and all servers, links and connections
	events agenda
	nodes  map[string]*Node
	links  map[linkName]*Link
	closed bool

	wake  chan struct{} // one slot: there is an event before the one that is waited for
	ended chan struct{}
}

// New makes an empty World inside a bubble. What happens in it follows from seed and from what is done to it. Close ends it.
func New(seed uint64) *World {
	w := &World{
		seed: seed, start: time.Now(), nodes: map[string]*Node{}, links: map[linkName]*Link{},
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	go w.run()
	return w
}

// Close breaks all connections and ends the World's only goroutine.
func (w *World) Close() {
	w.mu.Lock()
	w.closed = true
	for _, l := range w.links {
		l.breakAll(errReset)
	}
	w.mu.Unlock()
	w.rouse()
	<-w.ended
}

// event is something that happens at an instant. Those of one instant happen in the order of their content, because the
// order in which they were planned is the scheduler's.
type event struct {
	at      time.Time
	content func() string
	happen  func() // with mu held
}

type agenda []*event

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(*event)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return e
}

// plan has an event happen. mu is held.
func (w *World) plan(e *event) {
	heap.Push(&w.events, e)
	if w.events[0] == e {
		w.rouse()
	}
}

func (w *World) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run is the World's goroutine: it has the events happen, each at its instant.
func (w *World) run() {
	defer close(w.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, over := w.happen()
		if over {
			return
		}
		if next > 0 {
			timer.Reset(next)
		}
		select {
		case <-timer.C:
		case <-w.wake:
		}
	}
}

// happen has everything happen that is due, and says in how long the next event is, 0 when there is none.
func (w *World) happen() (next time.Duration, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for len(w.events) > 0 && !w.closed {
		if wait := w.events[0].at.Sub(now); wait > 0 {
			return wait, false
		}
		var due []*event
		for len(w.events) > 0 && !w.events[0].at.After(now) {
			due = append(due, heap.Pop(&w.events).(*event))
		}
		if len(due) > 1 {
			slices.SortStableFunc(due, func(a, b *event) int { return strings.Compare(a.content(), b.content()) })
		}
		for _, e := range due {
			e.happen()
		}
	}
	return 0, w.closed
}

// chance is a number below n that follows from the seed, from what it is for, and from the instant.
func (w *World) chance(n uint64, at time.Time, what string) uint64 {
	if n == 0 {
		return 0
	}
	return mix(w.hash(what)^uint64(at.Sub(w.start))) % n
}

// Chance is a number from 0 up to below n that follows from the seed, from what it is for, and from the instant.
func (w *World) Chance(n int64, what string) int64 {
	return int64(w.chance(uint64(n), time.Now(), what))
}

func (w *World) hash(what string) uint64 {
	h := w.seed ^ 0x9e3779b97f4a7c15
	for i := range len(what) {
		h = (h ^ uint64(what[i])) * 0x100000001b3
	}
	return h
}

// identity is 40 hexadecimal digits, as Redis calls a process, or a cluster's node.
func (w *World) identity(addr string, life int) string {
	return fmt.Sprintf("%040x", mix(w.hash(addr)+uint64(life)))
}

// mix is the last step of splitmix64.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
