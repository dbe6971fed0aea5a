package dedicated

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
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

// EXEC is answered when all that belongs to its reply has come, or the connection is over.
func TestRestOfExecIsAwaited(t *testing.T) {
	t.Parallel()
	subs := &Reply{Cmd: &commandtable.Command{Name: "subscribe"}, Args: 2}
	over, end := context.WithCancel(t.Context())
	end() // so that nothing waits: what is told is how it is now
	inExec := func() *Conn {
		state := State{proto: 2, transaction: transaction{multi: true, queued: 1, inside: effects{at: map[int]Effect{0: {subs: subs}}}}}
		return &Conn{Config: Config{Host: unmoved{}, Client: &client.Client{Conn: new(downstream.Conn), Process: &client.Process{Context: over}}, Context: over}, state: state,
			pending: pending{all: []*Reply{{Kind: commandtable.ConnExec}}}}
	}
	answered := func(p *Conn, when string, want bool) {
		t.Helper()
		p.changed.L = &p.mu
		if p.Settled() != want || p.Await(over) != want {
			t.Errorf("%s: Settled %v, Await %v, want %v", when, p.Settled(), p.Await(over), want)
		}
	}
	p := inExec()
	answered(p, "before the reply", false)
	p.piece([]byte("*1\r\n"+confirms("subscribe", "a", 1)), true)
	answered(p, "without the last confirmation", false)
	p.piece([]byte(confirms("subscribe", "b", 2)), true)
	answered(p, "with it", true)

	p = inExec()
	p.piece([]byte("*1\r\n"+confirms("subscribe", "a", 1)), true)
	p.life.released = true
	answered(p, "over", true)
}

// unmoved is a client that does nothing about what it is told of users' rights.
type unmoved struct{ Host }

func (unmoved) RightsChanged(bool) {}

func confirms(verb, channel string, n int) string {
	return fmt.Sprintf("*3\r\n%s%s:%d\r\n", bulk(verb), bulk(channel), n)
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
