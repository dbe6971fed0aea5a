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

// all reads a Conn's commands, those of Rest as well.
type all struct{ *Conn }

func (a all) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	for _, cmd := range a.Reader.Rest() {
		n += copy(p[n:], cmd.Raw)
	}
	return n, err
}

// Whatever the pieces in which commands come, redcon and Rest together have each of them once, and in order.
func TestRest(t *testing.T) {
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
		got, rest := commandsOf(t, sent, random.IntN(3000)+1, len(want))
		longest = max(longest, rest)
		for i := range want {
			if raw := resp.Command(want[i]); !bytes.Equal(resp.Command(got[i].Args), raw) || !bytes.Equal(got[i].Raw, raw) {
				t.Fatalf("command %d is %.60q, want %.60q", i, got[i].Raw, raw)
			}
		}
	}
	if longest < 10 {
		t.Error("at most so many commands came by Rest:", longest)
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

// commandsOf sends bytes in pieces of that size until so many commands have come. rest is the most that Rest returned.
func commandsOf(t *testing.T, sent []byte, piece, n int) (got []redcon.Command, rest int) {
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
		behind := c.Reader.Rest()
		if len(behind) > 0 && len(cmds) != 1 {
			t.Fatalf("redcon has %d commands before those of Rest", len(cmds))
		}
		got, rest = append(append(got, cmds...), behind...), max(rest, len(behind))
	}
	return got, rest
}
