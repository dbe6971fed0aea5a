package backend

import (
	"bytes"
	"testing"
)

func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 5, 7, 11, 12, 20} {
		b := &Batch{full: [][]byte{[]byte("01234"), []byte("56")}, fullSize: 7, Out: []byte("789ab")}
		b.truncate(n)
		left := string(bytes.Join(append(b.full, b.Out), nil))
		if want := "0123456789ab"[:max(0, 12-n)]; left != want || b.fullSize+len(b.Out) != len(want) {
			t.Errorf("without the last %d: %q, counted as %d", n, left, b.fullSize+len(b.Out))
		}
	}
}
