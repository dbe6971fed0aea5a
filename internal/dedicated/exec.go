package dedicated

import (
	"bytes"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// execution follows EXEC's reply while it is passed on. The first and the last bytes of its elements tell what the commands
// did to the connection, so only those are kept.
//
// Redis counts a SUBSCRIBE to two channels as one element, but sends two confirmations: so the reply ends too early, and the
// frames that should be its last come after it. So does, in RESP2, a message that a command of the transaction brings to this connection,
// which Redis does not count at all; in RESP3 see resp.Scanner. A null means that a watched key has changed: nothing has run, and nothing
// follows.
type execution struct {
	scan   resp.Scanner   // of the current element
	start  []byte         // the first bytes of the current element
	end    []byte         // and its last ones, if it is longer
	next   int            // the queued command whose elements come when due is 0
	due    int            // elements that are still to come of the command before that
	effect Effect         // of the command before that
	queued int            // number of queued commands
	inside map[int]Effect // what the commands do to the connection, by their place
}

// endBytes hold the number at the end of a confirmation.
const endBytes = 32

// follow takes the next bytes of EXEC's reply; begins says that they are its first, with all of its first line.
func (t *State) follow(b []byte, begins bool) {
	if begins {
		t.exec = nil
		if t.inside.at != nil && b[0] == '*' && b[1] != '-' {
			t.exec = &execution{queued: t.queued, inside: t.inside.at}
			b = b[bytes.IndexByte(b, '\n')+1:]
		}
	}
	for x := t.exec; x != nil && len(b) > 0; {
		n, done, err := x.scan.Scan(b)
		if err != nil {
			return
		}
		x.keep(b[:n])
		if b = b[n:]; done {
			x.element(t, append(x.start, x.end...))
			x.start, x.end = x.start[:0], x.end[:0]
			if cap(x.start) > keepBytes {
				x.start = nil
			}
		}
	}
}

// keep keeps what matters of the current element: its first and last bytes, and all of a confirmation.
func (x *execution) keep(b []byte) {
	n := min(len(b), classifyAt-len(x.start))
	if x.confirms() {
		n = len(b)
	}
	x.start, b = append(x.start, b[:n]...), b[n:]
	x.end = append(x.end, b[max(0, len(b)-endBytes):]...)
	x.end = append(x.end[:0], x.end[max(0, len(x.end)-endBytes):]...)
}

// confirms says that the current element confirms a subscription, unless it is an error.
func (x *execution) confirms() bool {
	e := x.effect
	if x.due == 0 {
		e = x.inside[x.next]
	}
	return e.subs != nil
}

// element takes one element, of which the middle may be missing.
func (x *execution) element(t *State, elem []byte) {
	if t.message(elem) {
		return
	}
	if x.due == 0 {
		x.advance(t, elem[0] == '-')
	}
	x.due--
	switch {
	case x.effect.subs != nil:
		t.confirmed(elem)
	case elem[0] == '+':
		t.apply(x.effect)
	}
}

// advance goes to the next of the queued commands.
func (x *execution) advance(t *State, failed bool) {
	x.effect, x.due = x.inside[x.next], 1
	if x.next++; x.effect.subs != nil && !failed {
		x.due = t.confirmationsOf(x.effect.subs)
	}
}

// executed is called at the end of EXEC's reply.
func (t *State) executed() {
	t.stray = t.exec.more()
	if !t.stray {
		t.exec = nil
	}
}

// strayed takes a frame that belongs to EXEC's reply but comes after it: see execution.
func (t *State) strayed(frame []byte) {
	t.exec.element(t, frame)
	t.executed()
}

// more says that not all elements have come.
func (x *execution) more() bool { return x != nil && (x.due > 0 || x.next < x.queued) }
