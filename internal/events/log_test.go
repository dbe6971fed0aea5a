package events

import (
	"io"
	"testing"
	"time"
)

func BenchmarkAdd(b *testing.B) {
	for _, c := range []struct {
		name string
		to   io.Writer
	}{{"ring", nil}, {"lines", io.Discard}} {
		b.Run(c.name, func(b *testing.B) {
			l := New(c.to)
			l.SetLong(time.Second)
			b.ReportAllocs()
			e := Event{Kind: Grant, Verb: "LOCK", Lock: true, Key: "orders:17", Side: "plain", Owner: "0f3a0000-0000-0000-0000-000000000000:17",
				Client: Client{"10.0.0.1:4711", "default", "worker"}, Waited: 300 * time.Microsecond}
			for b.Loop() {
				e.At = time.Now()
				l.Add(e)
			}
		})
	}
}
