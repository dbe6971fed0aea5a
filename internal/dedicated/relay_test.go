package dedicated

import (
	"strings"
	"testing"
)

// EXEC's head is found however its reply is cut to pieces.
func TestFencedHead(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"*1\r\n$2\r\nab\r\n": "ran $2\r\nab\r\n", "*1\r\n*1\r\n:1\r\n": "ran *1\r\n:1\r\n", "*1\r\n*-1\r\n": "ran *-1\r\n", "*1\r\n_\r\n": "ran _\r\n",
		"*1\r\n-ERR x\r\n": "ran -ERR x\r\n", "*-1\r\n": "not *-1\r\n", "_\r\n": "not _\r\n", "-EXECABORT x\r\n": "not -EXECABORT x\r\n",
		">2\r\n$10\r\ninvalidate\r\n_\r\n*1\r\n:1\r\n": "ran >2\r\n$10\r\ninvalidate\r\n_\r\n:1\r\n",
		"*1\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n:1\r\n": "ran >2\r\n$10\r\ninvalidate\r\n_\r\n:1\r\n",
	} {
		for _, head := range []string{"*1\r\n", "*2\r\n*1\r\n$-1\r\n", "*2\r\n*1\r\n_\r\n"} {
			answer := strings.Replace(answer, "*1\r\n", head, 1)
			for size := 1; size <= len(answer); size++ {
				if got := headedInPieces(t, answer, head, size); got != want {
					t.Errorf("%q in pieces of %d: %q, want %q", answer, size, got, want)
				}
			}
		}
	}
}

// headedInPieces says what becomes of the answer to an EXEC whose reply has that head.
func headedInPieces(t *testing.T, answer, head string, size int) string {
	t.Helper()
	var got []byte
	e := &Reply{Exec: Exec{Head: head}, Got: &got}
	p := &Conn{state: State{proto: 3}, pending: pending{all: []*Reply{e}}}
	for rest := []byte(answer); len(rest) > 0; {
		b := rest[:min(size, len(rest))]
		rest = rest[len(b):]
		for len(b) > 0 {
			if b = p.headed(b); len(b) == 0 {
				break
			}
			n, done, err := p.frame.scan.Scan(b)
			if err != nil {
				t.Fatal(err)
			}
			p.piece(b[:n], done)
			b = b[n:]
		}
	}
	switch {
	case len(p.pending.all) != 0:
		return "pending"
	case e.Exec.Ran:
		return "ran " + string(p.out.bytes)
	}
	return "not " + string(got)
}
