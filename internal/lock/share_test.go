package lock

import (
	"log/slog"
	"maps"
	"testing"
)

// What a user holds and asks for is counted once, whoever of the user's clients it is, and moves with the client.
func TestShares(t *testing.T) {
	t.Parallel()
	all := &shares{log: slog.New(slog.DiscardHandler), locks: map[User]int64{}}
	a, b, stranger := User{Name: "a"}, User{Name: "b"}, User{Address: "10.0.0.1"}
	one, two := &share{of: all, user: a}, &share{of: all, user: a}
	for i, step := range []struct {
		do   func()
		want map[User]int64
	}{
		{func() { all.most.Store(2) }, nil},
		{func() { must(t, one.ask()) }, map[User]int64{a: 1}},
		{one.hold, map[User]int64{a: 1}}, // granted
		{one.answered, map[User]int64{a: 1}},
		{func() { must(t, two.ask()) }, map[User]int64{a: 2}},
		{func() { over(t, one.ask()) }, map[User]int64{a: 2}},
		{one.answered, map[User]int64{a: 2}},
		{two.answered, map[User]int64{a: 1}}, // not granted
		{func() { one.move(stranger, 1) }, map[User]int64{stranger: 1}},
		{func() { two.move(b, 0); must(t, two.ask()) }, map[User]int64{stranger: 1, b: 1}},
		{one.hold, map[User]int64{stranger: 2, b: 1}}, // found to be there
		{func() { over(t, one.ask()) }, map[User]int64{stranger: 2, b: 1}},
		{func() { all.most.Store(0); must(t, one.ask()) }, map[User]int64{stranger: 3, b: 1}},
		{func() { one.answered(); one.leave(); one.leave(); two.answered() }, nil},
	} {
		if step.do(); !maps.Equal(all.locks, step.want) {
			t.Errorf("after step %d: %v, want %v", i, all.locks, step.want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func over(t *testing.T, err error) {
	t.Helper()
	if err != errShare {
		t.Error(err)
	}
}
