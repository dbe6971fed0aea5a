package checked

import (
	"io"
	"net"
	"strings"
	"testing"
)

// words are what random replies are made of, beside single bytes.
var words = []string{
	"+PONG\r\n", "+OK\r\n", "-QUEUED\r\n", "-ERR no\r\n", "-BUSY\r\n", ":1\r\n", "$-1\r\n", "_\r\n", "#t\r\n", "$3\r\nabc\r\n", "$0\r\n\r\n", ",1\r\n", "=5\r\ntxt:x\r\n",
	"*0\r\n", "*1\r\n", "*2\r\n", "*3\r\n", "*-1\r\n", "%1\r\n", "~2\r\n", ">0\r\n", ">1\r\n", ">2\r\n", ">3\r\n", "|1\r\n", "*?\r\n", "$?\r\n", ".\r\n",
	"$9\r\nsubscribe\r\n", "+unsubscribe\r\n", "$7\r\nmessage\r\n", "+pong\r\n", "+invalidate\r\n", "$1\r\na\r\n",
	began, alsoBegan, ended, said, clock, hello, hello6, noHello, "+PONG\r\n",
}

// nextWrite is the byte behind which a node waits for the next commands.
const nextWrite = 255

// answersIn are the answers that a fuzzer's bytes stand for.
func answersIn(in []byte) (all []string) {
	var b strings.Builder
	for _, c := range in {
		switch {
		case c == nextWrite:
			all = append(all, b.String())
			b.Reset()
		case int(c) < len(words)+128 && c >= 128:
			b.WriteString(words[c-128])
		default:
			b.WriteByte(c)
		}
	}
	return append(all, b.String())
}

// seed is the reverse of answersIn.
func seed(answers ...string) (in []byte) {
	for i, a := range answers {
		if i > 0 {
			in = append(in, nextWrite)
		}
		for len(a) > 0 {
			c, n := a[0], 1
			for i, p := range words {
				if strings.HasPrefix(a, p) && len(p) > n {
					c, n = byte(128+i), len(p)
				}
			}
			in, a = append(in, c), a[n:]
		}
	}
	return in
}

// FuzzClient has a node say anything to a real client of rueidis, whose goroutines end the process when they panic.
func FuzzClient(f *testing.F) {
	f.Add(seed(hello, "+PONG\r\n", began+said+alsoBegan, ended+"+PONG\r\n"), uint8(0))
	f.Add(seed(hello, clock, "+PONG\r\n-ERR no\r\n"), uint8(1))
	f.Add(seed(hello6, clock+"+OK\r\n"), uint8(1))
	f.Add(seed(hello, "+PONG\r\n", "-ERR no\r\n"+began), uint8(2))
	f.Add(seed(hello, "+PONG\r\n", began+alsoBegan, "-BUSY\r\n-BUSY\r\n"), uint8(3))
	f.Add(seed(noHello, noHello, "+PONG\r\n", ">2\r\n+unsubscribe\r\n_\r\n"), uint8(4))
	f.Add(seed(hello, "$-5\r\n"), uint8(5))
	f.Add(seed("+unsubscribe\r\n_\x01\xb95"), uint8(0))
	f.Fuzz(func(t *testing.T, in []byte, how uint8) {
		answers := answersIn(in)
		old := []string{noHello, noHello, "+PONG\r\n"}
		switch how % 4 {
		case 0:
			_, _ = listen(hasty, answers)
		case 1:
			_, _ = use(hasty, answers...)
		case 2:
			_, _ = listen(hasty, append([]string{hello}, answers...))
		case 3:
			_, _ = listen(hasty, old, old, append([]string{noHello}, answers...))
		}
	})
}

// pieces is a connection whose bytes come in pieces of a size, and which takes all that is written.
type pieces struct {
	net.Conn
	in   []byte
	size int
}

func (c *pieces) Read(p []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.in[:min(c.size, len(c.in))])
	c.in = c.in[n:]
	return n, nil
}

func (c *pieces) Write(p []byte) (int, error) { return len(p), nil }

// FuzzPieces: where a stream is cut into pieces changes nothing.
func FuzzPieces(f *testing.F) {
	f.Add([]byte(began+said+"+OK\r\n"+clock), uint8(1))
	f.Add([]byte("$5\r\nhello\r\n*1\r\n*-2\r\n"), uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		// given is what comes through of in, in pieces of a size, and how it ends.
		given := func(size int) (string, error) {
			c := New(&pieces{in: in, size: size})
			for range 3 {
				if _, err := c.Write([]byte("*1\r\n$4\r\nPING\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n")); err != nil {
					t.Fatal(err)
				}
			}
			out, err := io.ReadAll(c)
			return string(out), err
		}
		whole, err := given(len(in) + 1)
		cut, cutErr := given(int(size%7) + 1)
		if whole != cut || (err != nil) != (cutErr != nil) {
			t.Fatalf("whole: %q %v; in pieces of %d: %q %v", whole, err, size%7+1, cut, cutErr)
		}
	})
}
