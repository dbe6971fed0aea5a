package dedicated

import (
	"testing"
	"time"
)

// Replies come in the order of their commands; how long one took counts from the one before it, if that came later than
// it was sent.
func TestQueue(t *testing.T) {
	t.Parallel()
	var q queue
	if q.oldest() != nil || q.blocks() {
		t.Error("something is pending")
	}
	first, second := &Reply{sent: 1 * time.Second}, &Reply{sent: 2 * time.Second, Wait: Wait{Blocks: true}, Effect: Setting{Value: "yes"}}
	q.add(first)
	q.add(second)
	if want := 2*pendingBytes + len("yes"); q.bytes != want || q.blocks() || q.oldest() != first {
		t.Errorf("%d bytes, want %d; blocks: %v", q.bytes, want, q.blocks())
	}
	if took := q.pop(5 * time.Second); took != 4*time.Second || q.oldest() != second || !q.blocks() {
		t.Errorf("the first one took %v", took)
	}
	if took := q.pop(6 * time.Second); took != time.Second {
		t.Errorf("the second one took %v", took)
	}
	if q.oldest() != nil || q.bytes != 0 || q.all != nil {
		t.Errorf("in the end: %+v", q)
	}
}
