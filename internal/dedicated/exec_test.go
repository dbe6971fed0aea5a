package dedicated

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// What EXEC's commands did is found in its reply, in whatever pieces that comes.
func TestExecutionInPieces(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("c", 300)
	subs := &Reply{Cmd: &commandtable.Command{Name: "subscribe"}, Args: 2}
	inside := map[int]Effect{0: {Selects: true, DB: 4}, 2: {subs: subs}, 4: {Selects: true, DB: 5}, 5: {subs: &Reply{Cmd: &commandtable.Command{Name: "unsubscribe"}}}}
	reply := "*5\r\n+OK\r\n*2\r\n:1\r\n" + bulk(strings.Repeat("x", 1000)) + confirms("subscribe", "a", 1) + confirms("subscribe", long, 2) + "$-1\r\n"
	head := len("*5\r\n")
	for piece := 1; piece < len(reply); piece += 7 {
		state := State{transaction: transaction{multi: true, queued: 6, inside: effects{at: inside}}}
		b := []byte(reply)
		state.follow(b[:head], true)
		for b = b[head:]; len(b) > 0; b = b[min(piece, len(b)):] {
			state.follow(b[:min(piece, len(b))], false)
		}
		state.executed()
		if state.db != 4 || state.subs.channels != 2 || !state.stray {
			t.Fatalf("in pieces of %d bytes: %+v", piece, state)
		}
		for _, behind := range []string{"+OK\r\n", confirms("unsubscribe", "a", 1), confirms("unsubscribe", long, 0)} {
			if !state.stray {
				t.Fatalf("nothing is to come before %.40q: %+v", behind, state)
			}
			state.strayed([]byte(behind))
		}
		if state.db != 5 || state.subs.channels != 0 || state.stray || state.exec != nil {
			t.Fatalf("in pieces of %d bytes, in the end: %+v", piece, state)
		}
	}
	for _, none := range []string{"*-1\r\n", "_\r\n", "*0\r\n"} {
		state := State{transaction: transaction{multi: true, inside: effects{at: inside}}}
		state.follow([]byte(none), true)
		if state.executed(); state.stray || state.db != 0 {
			t.Errorf("%q: %+v", none, state)
		}
	}
}

func confirms(verb, channel string, n int) string {
	return fmt.Sprintf("*3\r\n%s%s:%d\r\n", bulk(verb), bulk(channel), n)
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
