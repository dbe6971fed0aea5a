package jitter

import (
	"slices"
	"testing"
	"time"
)

func TestNumbersStayBelow(t *testing.T) {
	seen := map[int]bool{}
	for range 1000 {
		n := N(3)
		if n < 0 || n > 2 {
			t.Fatal(n)
		}
		seen[n] = true
	}
	if len(seen) != 3 {
		t.Errorf("only %v of three came up", seen)
	}
}

func TestNumbersOfASimulation(t *testing.T) {
	From(func(n int64) int64 { return n - 1 })
	defer From(nil)
	if got := N(time.Second); got != time.Second-1 {
		t.Error(got)
	}
	order := []int{0, 1, 2, 3}
	Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	if !slices.Equal(order, []int{0, 1, 2, 3}) {
		t.Error(order)
	}
}

func TestTurns(t *testing.T) {
	Turn("nobody hears it", nil)
	var asked []string
	Turns(func(what string, more []string) { asked = append(append(asked, what), more...) })
	Turn("a", []string{"b"})
	Turns(nil)
	Turn("c", nil)
	if !slices.Equal(asked, []string{"a", "b"}) {
		t.Error(asked)
	}
}
