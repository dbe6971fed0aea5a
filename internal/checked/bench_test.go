package checked

import (
	"strings"
	"testing"
)

// BenchmarkReplies is the check of 500 renewals' reply, as it comes 10 times in one read.
func BenchmarkReplies(b *testing.B) {
	command := []byte("*1\r\n$4\r\nPING\r\n")
	one := "*500\r\n" + strings.Repeat(":1\r\n", 500)
	replies := []byte(strings.Repeat(one, 10))
	node := &pieces{in: replies, size: len(replies)}
	c := New(node)
	p := make([]byte, len(replies))
	b.SetBytes(int64(len(replies)))
	b.ReportAllocs()
	for b.Loop() {
		for range 10 {
			if _, err := c.Write(command); err != nil {
				b.Fatal(err)
			}
		}
		node.in = replies
		for left := len(replies); left > 0; {
			n, err := c.Read(p)
			if err != nil {
				b.Fatal(err)
			}
			left -= n
		}
	}
}
