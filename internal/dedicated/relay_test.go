package dedicated

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/upstream"
)

// fed returns a Conn, without its connection, on which that was said.
func fed(proto int, steps string) *Conn {
	c := talkIn(proto)
	c.run(steps)
	return &Conn{Config: Config{RightsChanged: func(bool) {}}, said: c.conversation}
}

// feed has an answer come in pieces of that size.
func (p *Conn) feed(t *testing.T, answer string, size int) {
	t.Helper()
	for piece := range slices.Chunk([]byte(answer), size) {
		for len(piece) > 0 {
			n, ends, err := p.frame.end(piece, p.said.expectsHead())
			if err != nil {
				t.Fatal(err)
			}
			p.piece(piece[:n], ends)
			piece = piece[n:]
		}
	}
}

// EXEC's head is found, and what follows is told apart, however its reply is cut to pieces.
func TestFencedInPieces(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"*1\r\n$2\r\nab\r\n": "ran $2\r\nab\r\n", "*1\r\n*1\r\n:1\r\n": "ran *1\r\n:1\r\n", "*1\r\n*-1\r\n": "ran *-1\r\n", "*1\r\n_\r\n": "ran _\r\n",
		"*1\r\n-ERR x\r\n": "ran -ERR x\r\n", "*-1\r\n": "not *-1\r\n", "_\r\n": "not _\r\n", "-EXECABORT x\r\n": "not -EXECABORT x\r\n",
		">2\r\n$10\r\ninvalidate\r\n_\r\n*1\r\n:1\r\n": "ran >2\r\n$10\r\ninvalidate\r\n_\r\n:1\r\n",
		"*1\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n:1\r\n": "ran >2\r\n$10\r\ninvalidate\r\n_\r\n:1\r\n",
	} {
		// Should somebody have given a lock the field that none has, what EXEC ran is answered all the same.
		for _, head := range []string{"*1\r\n", "*2\r\n*1\r\n$-1\r\n", "*2\r\n*1\r\n_\r\n", "*2\r\n*1\r\n$1\r\nx\r\n", "*2\r\n-WRONGTYPE x\r\n"} {
			answer := strings.Replace(answer, "*1\r\n", head, 1)
			for size := 1; size <= len(answer); size++ {
				p := fed(3, ">F")
				e := p.said.pending.oldest()
				e.Got = new([]byte)
				kept := e.Got
				p.feed(t, answer, size)
				got := "not " + string(*kept)
				if e.Ran {
					got = "ran " + string(p.out.bytes)
				}
				if got != want || len(p.said.pending.all) != 0 || p.out.part {
					t.Errorf("%q in pieces of %d: %q, want %q; %d pending", answer, size, got, want, len(p.said.pending.all))
				}
			}
		}
	}
}

// What EXEC's commands did is found in its reply, in whatever pieces that comes, and it is one reply to the client with
// all that Redis sends behind its array.
func TestExecInPieces(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("c", 300)
	reply := "*6\r\n+OK\r\n*2\r\n:1\r\n" + bulk(strings.Repeat("x", 1000)) + confirms("subscribe", "a", 1) + confirms("subscribe", long, 2) + "$-1\r\n"
	rest := "+OK\r\n" + confirms("unsubscribe", "a", 1) + confirms("unsubscribe", long, 0)
	for size := 1; size < len(reply); size += 7 {
		p := fed(2, "M+OK S+QUEUED G+QUEUED B+QUEUED G+QUEUED S+QUEUED b+QUEUED >E")
		p.feed(t, reply, size)
		if s := p.said.state; s.db != 3 || s.subs.total() != 2 || !s.executing() || !p.out.part || len(p.said.pending.all) != 1 {
			t.Fatalf("in pieces of %d bytes: %+v", size, s)
		}
		p.feed(t, rest, size)
		if s := p.said.state; s.subs.total() != 0 || s.multi() || p.out.part || len(p.said.pending.all) != 0 {
			t.Fatalf("in pieces of %d bytes, in the end: %+v", size, s)
		}
		if got := string(p.out.bytes); got != reply+rest {
			t.Fatalf("in pieces of %d bytes the client gets %q", size, got)
		}
	}
}

// EXEC is answered when all that belongs to its reply has come.
func TestRestOfExecIsAwaited(t *testing.T) {
	t.Parallel()
	p := fed(2, "M+OK B+QUEUED >E")
	answered := func(when string, want bool) {
		t.Helper()
		if got := p.settled(); got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	answered("before the reply", false)
	p.feed(t, "*1\r\n"+confirms("subscribe", "a", 1), 100)
	answered("without the last confirmation", false)
	p.feed(t, confirms("subscribe", "b", 2), 100)
	answered("with it", true)
}

// What Redis sends a subscriber behind its answer to HELLO, in the other protocol, is left until the client has its own
// answer. Behind a refusal it goes on.
func TestMessagesComeBehindHello(t *testing.T) {
	t.Parallel()
	const message = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n"
	p := fed(2, ">B (subscribe:a:1 (subscribe:b:2 >o")
	p.View, p.conn = new(View), new(upstream.Dedicated)
	p.said.pending.oldest().Effect = Protocol(3)
	p.received([]byte("*0\r\n" + message))
	if string(p.left) != message || p.said.pending.oldest() != nil {
		t.Errorf("%q is left; %d replies are pending", p.left, len(p.said.pending.all))
	}
	p.left = nil
	p.said.pending.add(&Reply{Own: true, Effect: Protocol(2)})
	if refusal := []byte("-NOPROTO x\r\n"); p.piece(refusal, true) {
		t.Error("so it is behind a refusal")
	}
}

// A head that does not end is none.
func TestEndlessHead(t *testing.T) {
	t.Parallel()
	var f incoming
	if _, _, err := f.end([]byte("*"+strings.Repeat("1", classifyAt)), true); err == nil {
		t.Error("it is taken")
	}
}

// What is held back counts only while it is much, and nothing is left of a frame that has ended.
func TestFrameIsCleared(t *testing.T) {
	t.Parallel()
	p := fed(2, ">r >G")
	p.feed(t, "-"+strings.Repeat("x", 4*keepBytes), 1000)
	if kept := beyond(p.frame.begins); kept < 4*keepBytes {
		t.Errorf("%d bytes of an error are kept", kept)
	}
	p.feed(t, "\r\n+OK\r\n", 1000)
	if p.frame.judged || !p.frame.none() || cap(p.frame.begins) > keepBytes || string(p.out.bytes) != "+OK\r\n" {
		t.Errorf("%d bytes are kept, the client gets %q", cap(p.frame.begins), p.out.bytes)
	}
}

func confirms(verb, channel string, n int) string {
	return fmt.Sprintf("*3\r\n%s%s:%d\r\n", bulk(verb), bulk(channel), n)
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
