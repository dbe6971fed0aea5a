package upstream

import (
	"bytes"
	"testing"
)

// What is shorter than CopiedBelow may be overwritten as soon as it has been added, and only that.
func TestCopiedBelow(t *testing.T) {
	t.Parallel()
	for length, copied := range map[int]bool{1: true, CopiedBelow - 1: true, CopiedBelow: false, 2 * CopiedBelow: false} {
		cmd := bytes.Repeat([]byte("a"), length)
		var b batch
		b.addCommands([][]byte{cmd})
		cmd[0] = 'b'
		var wrote bytes.Buffer
		if n, err := b.writeTo(&wrote); err != nil || n != int64(length) || (wrote.Bytes()[0] == 'a') != copied {
			t.Errorf("%d bytes: %d written, %v, the first is %c", length, n, err, wrote.Bytes()[0])
		}
	}
}
