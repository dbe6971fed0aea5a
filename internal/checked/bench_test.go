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
	c := New(nil)
	b.SetBytes(int64(len(replies)))
	b.ReportAllocs()
	for b.Loop() {
		for range 10 {
			c.sent.take(command, &c.asked)
		}
		if n, err := c.check(replies); n != len(replies) || err != nil {
			b.Fatal(n, err)
		}
	}
}
