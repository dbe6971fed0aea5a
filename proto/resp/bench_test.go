package resp

import (
	"bytes"
	"io"
	"testing"

	"github.com/tidwall/redcon"
)

// endless repeats a block of bytes for ever, as much of it in one Read as fits.
type endless struct {
	block []byte
	at    int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.block[e.at:])
	e.at = (e.at + n) % len(e.block)
	return n, nil
}

func smallSets() *endless {
	one := AppendCommand(nil, "SET", "key:000000000042", "value-of-16bytes")
	return &endless{block: bytes.Repeat(one, 1000)}
}

// BenchmarkRedcon is what redcon's own parsing of a pipeline of small SETs
// costs, a command; BenchmarkRedconReader is the same with the Reader below it.
// The difference is the Reader's share.
func BenchmarkRedcon(b *testing.B) { benchmarkRedcon(b, smallSets()) }

func BenchmarkRedconReader(b *testing.B) {
	benchmarkRedcon(b, NewReader(smallSets(), Limits{}))
}

func benchmarkRedcon(b *testing.B, src io.Reader) {
	rd := redcon.NewReader(src)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rd.ReadCommand(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReader is the Reader alone, a command of the same pipeline.
func BenchmarkReader(b *testing.B) {
	src := smallSets()
	one := len(src.block) / 1000
	r := NewReader(src, Limits{})
	p := make([]byte, 4096)
	b.ReportAllocs()
	left := 0
	for b.Loop() {
		for ; left < one; left++ {
			n, err := r.Read(p)
			if err != nil {
				b.Fatal(err)
			}
			left += n
		}
		left -= one
	}
}

func BenchmarkScanner(b *testing.B) {
	list := AppendArray(nil, 10)
	for range 10 {
		list = AppendBulkString(list, "value-of-16bytes")
	}
	for _, bench := range []struct {
		name  string
		frame []byte
	}{
		{"status", AppendSimple(nil, "OK")},
		{"integer", AppendInt(nil, 12345)},
		{"bulk16", AppendBulk(nil, make([]byte, 16))},
		{"bulk1024", AppendBulk(nil, make([]byte, 1024))},
		{"null", AppendNull(nil, 2)},
		{"array10", list},
	} {
		b.Run(bench.name, func(b *testing.B) {
			replies := bytes.Repeat(bench.frame, 100)
			var s Scanner
			b.ReportAllocs()
			rest := replies
			for b.Loop() {
				n, done, err := s.Scan(rest)
				if !done || err != nil {
					b.Fatal(n, done, err)
				}
				if rest = rest[n:]; len(rest) == 0 {
					rest = replies
				}
			}
		})
	}
}
