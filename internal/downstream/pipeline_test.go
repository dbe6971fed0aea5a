package downstream

import (
	"bytes"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// all reads a Conn's commands as the client has sent them.
type all struct {
	*Conn
	left []byte
}

// next returns the commands of one read.
func (a *all) next() ([]byte, error) {
	p := make([]byte, 4096)
	n, err := a.Conn.Read(p)
	first, rest := a.Reader.Commands(redcon.Command{Raw: p[:n]}, nil)
	raw := first.Raw
	for _, cmd := range rest {
		raw = append(raw, cmd.Raw...)
	}
	return raw, err
}

func (a *all) Read(p []byte) (n int, err error) {
	if len(a.left) == 0 {
		a.left, err = a.next()
	}
	n = copy(p, a.left)
	a.left = a.left[n:]
	return n, err
}

// Whatever the pieces in which commands come, redcon and Commands together have each of them once, and in order.
func TestCommands(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	longest := 0
	for range 200 {
		var sent []byte
		var want [][][]byte
		for range 1 + random.IntN(40) {
			as, words := randomCommand(random)
			sent, want = append(sent, as...), append(want, words)
		}
		got, behind := commandsOf(t, sent, random.IntN(3000)+1, len(want))
		longest = max(longest, behind)
		for i := range want {
			if raw := resp.Command(want[i]); !bytes.Equal(resp.Command(got[i].Args), raw) || !bytes.Equal(got[i].Raw, raw) {
				t.Fatalf("command %d is %.60q, want %.60q", i, got[i].Raw, raw)
			}
		}
	}
	if longest < 10 {
		t.Error("at most so many commands came behind another one:", longest)
	}
}

// randomCommand returns a command, and how a client sends it: now and then as a line, with line ends that are not CR
// LF, or with words that look like commands.
func randomCommand(random *rand.Rand) (as []byte, words [][]byte) {
	value := []byte("value")
	switch random.IntN(12) {
	case 0:
		return []byte("GET stock\r\n"), [][]byte{[]byte("GET"), []byte("stock")}
	case 1:
		return []byte("*1\rx$4\r.PING||"), [][]byte{[]byte("PING")}
	case 2:
		value = bytes.Repeat([]byte("x"), random.IntN(20000))
	case 3:
		value = []byte(strings.Repeat("*1\r\n$4\r\nPING\r\n", random.IntN(500)))
	case 4:
		value = nil
	}
	words = [][]byte{[]byte("SET"), []byte("stock"), value}
	return resp.Command(words), words
}

// commandsOf sends bytes in pieces of that size until so many commands have come. most is how many came behind one, at most.
func commandsOf(t *testing.T, sent []byte, piece, n int) (got []redcon.Command, most int) {
	here, there := net.Pipe()
	defer there.Close()
	c := newTestConn(t, here)
	go func() {
		for len(sent) > 0 {
			k := min(piece, len(sent))
			there.Write(sent[:k])
			sent = sent[k:]
		}
	}()
	for rd := redcon.NewReader(c); len(got) < n; {
		cmds, err := rd.ReadCommands()
		if err != nil {
			t.Fatal(err)
		}
		if len(cmds) != 1 {
			t.Fatalf("redcon has cut %d commands at once", len(cmds))
		}
		first, behind := c.Reader.Commands(cmds[0], nil)
		got, most = append(append(got, first), behind...), max(most, len(behind))
	}
	return got, most
}
