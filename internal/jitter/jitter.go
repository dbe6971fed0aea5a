// Package jitter is the chance in pauses: many who wait for the same thing are not to come back together. A simulation has it follow from
// its seed.
package jitter

import (
	"math/rand/v2"
	"sync/atomic"
)

// source stands for the random numbers; nil: math/rand's.
var source atomic.Pointer[func(n int64) int64]

// N is a number from 0 up to below n, which must be above 0.
func N[T ~int | ~int64](n T) T {
	if s := source.Load(); s != nil {
		return T((*s)(int64(n)))
	}
	return rand.N(n)
}

// Shuffle puts n things into an order by chance.
func Shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, N(i+1))
	}
}

// From has all numbers come from s, for a simulation that is to be repeated: s is to give numbers from 0 up to below n, whatever
// goroutine asks. nil ends that. Tests that call it run alone.
func From(s func(n int64) int64) {
	if s == nil {
		source.Store(nil)
		return
	}
	source.Store(&s)
}

// Repeated says that this is a simulation that is to be repeated, in which nothing may depend on the order of goroutines.
func Repeated() bool { return source.Load() != nil }

// turn stands for Turn; nil: it does nothing.
var turn atomic.Pointer[func(what string, more []string)]

// Turn is called by those who may be about to ask Redis at one and the same instant, each for something else. In a simulation they do so
// one after the other, since the order of goroutines cannot be repeated. Otherwise it does nothing.
func Turn(what string, more []string) {
	if t := turn.Load(); t != nil {
		(*t)(what, more)
	}
}

// Turns has Turn call f, for a simulation that is to be repeated; nil ends that.
func Turns(f func(what string, more []string)) {
	if f == nil {
		turn.Store(nil)
		return
	}
	turn.Store(&f)
}
