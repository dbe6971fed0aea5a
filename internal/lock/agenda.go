package lock

import (
	"container/heap"
	"time"
)

// agenda is a list of things to do, the earliest first, and the time at which its owner looks at it next. Its owner's mutex guards
// it: Manager.mu, or vacancies.mu.
type agenda[T any] struct {
	all   []T
	at    func(T) time.Time
	place func(T) *int  // where a thing keeps its own place in all, counted from 1; 0: it is not there
	wake  chan struct{} // one slot: something is to be done before look; nil: nobody sleeps on this
	look  time.Time
}

// put adds a thing, or moves it when its time has changed.
func (a *agenda[T]) put(x T) {
	if i := *a.place(x); i == 0 {
		heap.Push(a, x)
	} else {
		heap.Fix(a, i-1)
	}
	if at := a.at(x); a.wake != nil && at.Before(a.look) {
		a.look = at // one signal is enough
		signal(a.wake)
	}
}

// drop takes a thing off, if it is there.
func (a *agenda[T]) drop(x T) {
	if i := *a.place(x); i > 0 {
		heap.Remove(a, i-1)
	}
}

// due is the first thing to do, if its time has come.
func (a *agenda[T]) due(now time.Time) (x T, ok bool) {
	if len(a.all) == 0 || a.at(a.all[0]).After(now) {
		return x, false
	}
	return a.all[0], true
}

// sleep is for how long the owner may sleep: until the first thing is to be done, but not less than least. put wakes it when
// something comes before that.
func (a *agenda[T]) sleep(least time.Duration) time.Duration {
	next := time.Hour
	if len(a.all) > 0 {
		next = max(time.Until(a.at(a.all[0])), least)
	}
	a.look = time.Now().Add(next)
	return next
}

// Len implements heap.Interface.
func (a *agenda[T]) Len() int { return len(a.all) }

// Less implements heap.Interface.
func (a *agenda[T]) Less(i, j int) bool { return a.at(a.all[i]).Before(a.at(a.all[j])) }

// Swap implements heap.Interface.
func (a *agenda[T]) Swap(i, j int) {
	a.all[i], a.all[j] = a.all[j], a.all[i]
	*a.place(a.all[i]), *a.place(a.all[j]) = i+1, j+1
}

// Push implements heap.Interface.
func (a *agenda[T]) Push(x any) {
	a.all = append(a.all, x.(T))
	*a.place(x.(T)) = len(a.all)
}

// Pop implements heap.Interface.
func (a *agenda[T]) Pop() any {
	last := len(a.all) - 1
	x := a.all[last]
	var none T
	a.all[last] = none
	a.all = a.all[:last]
	*a.place(x) = 0
	return x
}

// newSchedule is when each hold is renewed, or looked at.
func newSchedule() agenda[*hold] {
	return agenda[*hold]{
		at: func(h *hold) time.Time { return h.next }, place: func(h *hold) *int { return &h.place },
		wake: make(chan struct{}, 1),
	}
}

// newDeadlines is when each hold is told lost.
func newDeadlines() agenda[*hold] {
	return agenda[*hold]{
		at: func(h *hold) time.Time { return h.ends }, place: func(h *hold) *int { return &h.endsPlace },
		wake: make(chan struct{}, 1),
	}
}
