package client

import (
	"bytes"
	"testing"
)

func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 5, 7, 11, 12, 20} {
		b := &Output{pieces: [][]byte{[]byte("01234"), []byte("56")}, size: 7, Bytes: []byte("789ab")}
		b.Truncate(n)
		left := string(bytes.Join(append(b.pieces, b.Bytes), nil))
		if want := "0123456789ab"[:max(0, 12-n)]; left != want || b.size+len(b.Bytes) != len(want) {
			t.Errorf("without the last %d: %q, counted as %d", n, left, b.size+len(b.Bytes))
		}
	}
}
