package redisson

import (
	"testing"
	"time"
)

// allOrNone: a member that is held keeps the whole away, and no member stays held after a try that failed.
func allOrNone(t *testing.T, e *env, pair, kind string) {
	a, b := e.first(t, pair), e.secondSide(t, pair)
	l := e.lock(kind)
	for _, name := range l.members() {
		member := lock{"plain", name}
		hold(t, a, member, long)
		if won, err := b.try(l, 300*time.Millisecond, long); won || err != nil {
			t.Fatalf("with %s held: %v %v", name, won, err)
		}
		for _, other := range l.members() {
			if n := e.holds(t, other); other != name && n != 0 {
				t.Errorf("%s is held after a try that failed at %s", other, name)
			}
		}
		free(t, a, member)
	}
	hold(t, b, l, long)
	for _, name := range l.members() {
		tries(t, a, lock{"plain", name}, false)
	}
	free(t, b, l)
	for _, name := range l.members() {
		tries(t, a, lock{"plain", name}, true)
		free(t, a, lock{"plain", name})
	}
}
