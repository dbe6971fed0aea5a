package chain

import (
	"slices"
	"testing"
)

type member struct {
	name     string
	one, two Link[*member]
}

func names(c Chain[*member]) (all []string) {
	for m := range c.All() {
		all = append(all, m.name)
	}
	return all
}

// Members stay in the order in which they came, whichever of them is dropped, and come back at the end.
func TestOrder(t *testing.T) {
	for dropped, left := range map[int]string{0: "bcd", 1: "acd", 2: "abd", 3: "abc"} {
		var c Chain[*member]
		var all []*member
		for _, name := range []string{"a", "b", "c", "d"} {
			m := &member{name: name}
			c.Add(&m.one, m)
			all = append(all, m)
		}
		m := all[dropped]
		c.Drop(&m.one)
		want := []string{left[:1], left[1:2], left[2:]}
		if got := names(c); !slices.Equal(got, want) || c.Len() != 3 {
			t.Errorf("without %s: %v, and Len says %d", m.name, got, c.Len())
		}
		c.Add(&m.one, m)
		c.Add(&m.one, m) // it is there already
		if got := names(c); !slices.Equal(got, append(want, m.name)) || c.Len() != 4 {
			t.Errorf("with %s again: %v, and Len says %d", m.name, got, c.Len())
		}
	}
}

// A member may be in two chains, and be dropped from one while that is read.
func TestDropWhileReading(t *testing.T) {
	var one, two Chain[*member]
	for _, name := range []string{"a", "b", "c"} {
		m := &member{name: name}
		one.Add(&m.one, m)
		two.Add(&m.two, m)
	}
	var seen []string
	for m := range one.All() {
		seen = append(seen, m.name)
		one.Drop(&m.one)
	}
	if !slices.Equal(seen, []string{"a", "b", "c"}) || one.Len() != 0 || names(one) != nil {
		t.Errorf("seen %v, left %v (%d)", seen, names(one), one.Len())
	}
	if got := names(two); !slices.Equal(got, seen) {
		t.Errorf("the other chain has %v", got)
	}
	for m := range two.All() {
		two.Drop(&m.two)
		break
	}
	if got := names(two); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("after the first has gone: %v", got)
	}
}

// Adding and dropping allocate nothing.
func TestAllocatesNothing(t *testing.T) {
	var c Chain[*member]
	m := &member{name: "a"}
	if n := testing.AllocsPerRun(100, func() { c.Add(&m.one, m); c.Drop(&m.one) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
