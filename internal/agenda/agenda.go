// Package agenda is a list of things to do at a time of their own, the earliest first.
package agenda

import (
	"container/heap"
	"time"
)

// Agenda is a list of things to do, and the time at which its owner looks at it next. Its owner's mutex guards it.
type Agenda[T any] struct {
	Wake chan struct{} // one slot: something is to be done before the owner looks; nil: nobody sleeps on this

	order order[T]
	look  time.Time
}

// New is an empty agenda. at is when a thing is to be done, and place where it keeps its own place in the list, counted from 1; 0: it
// is not there.
func New[T any](at func(T) time.Time, place func(T) *int) Agenda[T] {
	return Agenda[T]{Wake: make(chan struct{}, 1), order: order[T]{at: at, place: place}}
}

// Put adds a thing, or moves it when its time has changed.
func (a *Agenda[T]) Put(x T) {
	if i := *a.order.place(x); i == 0 {
		heap.Push(&a.order, x)
	} else {
		heap.Fix(&a.order, i-1)
	}
	if at := a.order.at(x); at.Before(a.look) {
		a.look = at // to be woken once is enough
		select {
		case a.Wake <- struct{}{}:
		default:
		}
	}
}

// Drop takes a thing off, if it is there.
func (a *Agenda[T]) Drop(x T) {
	if i := *a.order.place(x); i > 0 {
		heap.Remove(&a.order, i-1)
	}
}

// Len is how many things there are to do.
func (a *Agenda[T]) Len() int { return len(a.order.all) }

// First is the first thing to do of those that there are.
func (a *Agenda[T]) First() T { return a.order.all[0] }

// Due is the first thing to do, if its time has come.
func (a *Agenda[T]) Due(now time.Time) (x T, ok bool) {
	if a.Len() == 0 || a.order.at(a.First()).After(now) {
		return x, false
	}
	return a.First(), true
}

// Sleep is for how long the owner may sleep: until the first thing is to be done, but not less than least. Put wakes it when
// something comes before that.
func (a *Agenda[T]) Sleep(least time.Duration) time.Duration {
	next := time.Hour
	if a.Len() > 0 {
		next = max(time.Until(a.order.at(a.First())), least)
	}
	a.look = time.Now().Add(next)
	return next
}

// order is the list as a heap.
type order[T any] struct {
	all   []T
	at    func(T) time.Time
	place func(T) *int
}

// Len implements heap.Interface.
func (o *order[T]) Len() int { return len(o.all) }

// Less implements heap.Interface.
func (o *order[T]) Less(i, j int) bool { return o.at(o.all[i]).Before(o.at(o.all[j])) }

// Swap implements heap.Interface.
func (o *order[T]) Swap(i, j int) {
	o.all[i], o.all[j] = o.all[j], o.all[i]
	*o.place(o.all[i]), *o.place(o.all[j]) = i+1, j+1
}

// Push implements heap.Interface.
func (o *order[T]) Push(x any) {
	o.all = append(o.all, x.(T))
	*o.place(x.(T)) = len(o.all)
}

// Pop implements heap.Interface.
func (o *order[T]) Pop() any {
	last := len(o.all) - 1
	x := o.all[last]
	var none T
	o.all[last] = none
	o.all = o.all[:last]
	*o.place(x) = 0
	return x
}
