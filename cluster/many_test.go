package cluster

import (
	"fmt"
	"testing"
	"time"
)

// Whether commands with very many keys have one in common costs by their keys, not by each key's comparison with each other.
func TestSharesOfMany(t *testing.T) {
	t.Parallel()
	const many = 100_000
	of := func(first int) *unit {
		cmd := Command{Facts: FactsOf("del", nil, nil)}
		for i := range many {
			cmd.Args = append(cmd.Args, fmt.Append(nil, "{a}", first+i))
			cmd.Keys = append(cmd.Keys, i)
		}
		return &NewPlan(cmd).units[0]
	}
	u, apart, touching := of(0), of(many), of(many-1)
	began := time.Now()
	if u.shares(apart) || apart.shares(u) {
		t.Error("they have no key in common")
	}
	if !u.shares(touching) || !touching.shares(u) {
		t.Error("they have a key in common")
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

// So does what comes of a round of which a node has run nothing.
func TestOvertakenOfMany(t *testing.T) {
	t.Parallel()
	const many = 200_000
	b := &batch{}
	for i := range many {
		b.units = append(b.units, &unit{plan: &Plan{cmd: Command{Facts: FactsOf("set", nil, nil)}}, slot: i})
	}
	began := time.Now()
	b.overtaken()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	for _, u := range b.units {
		if u.done {
			t.Fatal("nothing has overtaken it")
		}
	}
}
