// Package agenda is a list of things to do at a time of their own, the earliest first.
package agenda

import "time"

// Agenda is a list of things to do, and the time at which its owner looks at it next. Its owner's mutex guards it.
type Agenda[T any] struct {
	Wake chan struct{} // one slot: something is to be done before the owner looks; nil: nobody sleeps on this

	place func(T) *int32
	all   []entry[T] // a heap
	began time.Time  // from which times are counted
	look  time.Duration
}

// New is an empty agenda. place is where a thing keeps its own place in the list, counted from 1; 0: it is not there.
func New[T any](place func(T) *int32) Agenda[T] {
	return Agenda[T]{Wake: make(chan struct{}, 1), place: place, began: time.Now()}
}

// Put adds a thing that is to be done at that time, or moves it there.
func (a *Agenda[T]) Put(x T, at time.Time) {
	e := entry[T]{at.Sub(a.began), x}
	if i := *a.place(x); i == 0 {
		a.all = append(a.all, e)
		a.rise(len(a.all)-1, e)
	} else {
		a.settle(int(i)-1, e)
	}
	if e.at < a.look {
		a.look = e.at // to be woken once is enough
		select {
		case a.Wake <- struct{}{}:
		default:
		}
	}
}

// Drop takes a thing off, if it is there.
func (a *Agenda[T]) Drop(x T) {
	i := int(*a.place(x))
	if i == 0 {
		return
	}
	*a.place(x) = 0
	last := len(a.all) - 1
	e := a.all[last]
	a.all[last] = entry[T]{}
	a.all = a.all[:last]
	if i-1 < last {
		a.settle(i-1, e)
	}
}

// Len is how many things there are to do.
func (a *Agenda[T]) Len() int { return len(a.all) }

// First is the first thing to do of those that there are.
func (a *Agenda[T]) First() T { return a.all[0].x }

// Due is the first thing to do, if its time has come.
func (a *Agenda[T]) Due(now time.Time) (x T, ok bool) {
	if a.Len() == 0 || a.all[0].at > now.Sub(a.began) {
		return x, false
	}
	return a.First(), true
}

// Sleep is for how long the owner may sleep: until the first thing is to be done, but not less than least. Put wakes it when
// something comes before that.
func (a *Agenda[T]) Sleep(least time.Duration) time.Duration {
	next, now := time.Hour, time.Since(a.began)
	if a.Len() > 0 {
		next = max(a.all[0].at-now, least)
	}
	a.look = now + next
	return next
}

// entry is a thing in the heap. Its time stands beside it, since to look for it where the things are is what a list of 100,000 costs;
// as a time.Time it would take three times as much memory.
type entry[T any] struct {
	at time.Duration // since the agenda began
	x  T
}

// children is how many entries come after each in the heap: with eight, a third as many are moved as with two.
const children = 8

// rise moves entry e from place i, which is free, to where no later one is before it.
func (a *Agenda[T]) rise(i int, e entry[T]) {
	for i > 0 {
		before := (i - 1) / children
		if e.at >= a.all[before].at {
			break
		}
		a.set(i, a.all[before])
		i = before
	}
	a.set(i, e)
}

// sink moves entry e from place i, which is free, to where no earlier one is after it.
func (a *Agenda[T]) sink(i int, e entry[T]) {
	for {
		first := children*i + 1
		if first >= len(a.all) {
			break
		}
		next := first
		for j := first + 1; j < min(first+children, len(a.all)); j++ {
			if a.all[j].at < a.all[next].at {
				next = j
			}
		}
		if a.all[next].at >= e.at {
			break
		}
		a.set(i, a.all[next])
		i = next
	}
	a.set(i, e)
}

// settle moves entry e from place i, which is free, to where it belongs.
func (a *Agenda[T]) settle(i int, e entry[T]) {
	if i > 0 && e.at < a.all[(i-1)/children].at {
		a.rise(i, e)
	} else {
		a.sink(i, e)
	}
}

func (a *Agenda[T]) set(i int, e entry[T]) {
	a.all[i] = e
	*a.place(e.x) = int32(i + 1)
}
