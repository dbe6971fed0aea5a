package checked

import (
	"bytes"
	"errors"
)

var (
	errUnasked   = errors.New("a reply that nobody asked for")
	errConfirmed = errors.New("the confirmation of a subscription that nobody asked for")
	errSubscribe = errors.New("a reply to SUBSCRIBE that is neither a confirmation nor an error")
	// errUnsubscribe also ends connections to a Redis that is loading or busy: it refuses both UNSUBSCRIBE and the PING that rueidis sends
	// behind it, and rueidis takes the first refusal for the answer to both.
	errUnsubscribe = errors.New("a reply to UNSUBSCRIBE, and the PING behind it, that is not PONG")
)

// account is what was asked and has no reply yet. It is kept as rueidis keeps it (pipe.go, _backgroundRead), so that what is a reply to nothing
// here would be one there, too.
type account struct {
	commands queue
	begun    bool
	resp2    bool  // a connection for subscriptions to a Redis before 6: its messages are arrays
	listens  bool  // a subscription was asked for
	closing  bool  // the last command was UNSUBSCRIBE, behind which rueidis sends PING
	confirms int64 // confirmations still to come of a subscription that has had its first
}

// kind is what a command is answered with.
type kind uint8

const (
	ordinary     kind = iota // a reply
	subscribes               // a confirmation for each channel, or an error
	unsubscribes             // any number of confirmations, and the PONG to the PING behind it; or an error first
	pongs                    // that PONG, behind an error
)

// ask notes a command with its first argument and the number of all.
func (a *account) ask(verb, first *text, args int64) {
	if !a.begun {
		a.begun = true
		a.resp2 = !(verb.is("HELLO") && first.is("3"))
	}
	what := ordinary
	switch {
	case verb.is("SUBSCRIBE"), verb.is("PSUBSCRIBE"), verb.is("SSUBSCRIBE"):
		what, a.listens = subscribes, true
	case verb.is("UNSUBSCRIBE"), verb.is("PUNSUBSCRIBE"), verb.is("SUNSUBSCRIBE"):
		what = unsubscribes
	case verb.is("PING") && a.closing:
		a.closing = false
		return
	}
	a.closing = what == unsubscribes
	a.commands.push(what, args)
}

// expects says whether a frame may come that begins with that byte.
func (a *account) expects(kind byte) bool {
	return kind == '>' || a.resp2 || a.commands.len() > 0
}

// answer finds what a whole frame belongs to.
func (a *account) answer(f *frame) error {
	if a.message(f) {
		if f.count < 2 {
			return nil
		}
		return a.confirm(f)
	}
	if a.commands.len() == 0 {
		return errUnasked
	}
	switch what, _ := a.commands.first(); {
	case what == subscribes && (f.kind != '-' || f.text.is("QUEUED")):
		return errSubscribe
	case what == unsubscribes && refusal(f):
		a.commands.entries[a.commands.head].what = pongs
		return nil
	case (what == unsubscribes || what == pongs) && !pong(f):
		return errUnsubscribe
	}
	a.commands.pop()
	return nil
}

// message says whether a frame belongs to no command by itself.
func (a *account) message(f *frame) bool {
	list := f.kind == '*' || f.kind == '~' || f.kind == '%'
	return f.kind == '>' || a.resp2 && list && f.count > 0 && !f.text.is("pong") && (a.listens || begins(f) || ends(f))
}

// pong says whether a frame is the answer to the PING behind UNSUBSCRIBE.
func pong(f *frame) bool {
	return f.kind == '+' && f.text.is("PONG") || f.kind == '*' && f.text.is("pong")
}

// refusal says whether a frame is an error of UNSUBSCRIBE, as of a node of a cluster that does not have the slot any more, behind which rueidis
// waits for the PONG. It takes some errors for the PONG itself, since they are of every command, or of PING (isUnsubReply).
func refusal(f *frame) bool {
	if f.kind != '-' || f.text.n > shortText || f.text.is("PONG") || f.text.is("QUEUED") {
		return false
	}
	line := f.text.start[:f.text.n]
	return !bytes.HasPrefix(line, []byte("LOADING")) && !bytes.HasPrefix(line, []byte("BUSY")) && !bytes.Contains(line, []byte("'ping'"))
}

// confirm notes the confirmation of a subscription, if the message is one. Redis ends subscriptions also when nobody asked for that.
func (a *account) confirm(f *frame) error {
	began, ended := begins(f), ends(f)
	switch {
	case !began && !ended:
	case a.confirms > 0:
		a.confirms--
	case ended:
	case a.commands.len() == 0:
		return errConfirmed
	default:
		what, channels := a.commands.first()
		if what != subscribes {
			return errConfirmed
		}
		a.commands.pop()
		a.confirms = channels - 1
	}
	return nil
}

func begins(f *frame) bool {
	return f.text.is("subscribe") || f.text.is("psubscribe") || f.text.is("ssubscribe")
}

func ends(f *frame) bool {
	return f.text.is("unsubscribe") || f.text.is("punsubscribe") || f.text.is("sunsubscribe")
}

// queue is a line of commands, of which ordinary ones that follow each other are one entry.
type queue struct {
	entries []entry
	head    int
}

type entry struct {
	what kind
	n    int64 // ordinary: so many commands; otherwise its channels
}

func (q *queue) len() int { return len(q.entries) - q.head }

func (q *queue) push(what kind, args int64) {
	if last := len(q.entries) - 1; what == ordinary {
		if args = 1; q.len() > 0 && q.entries[last].what == ordinary {
			q.entries[last].n++
			return
		}
	}
	if q.head > 0 && len(q.entries) == cap(q.entries) {
		q.entries = q.entries[:copy(q.entries, q.entries[q.head:])]
		q.head = 0
	}
	q.entries = append(q.entries, entry{what, args})
}

// first is the oldest command, and its channels.
func (q *queue) first() (what kind, n int64) {
	e := q.entries[q.head]
	return e.what, e.n
}

// pop takes the oldest command off.
func (q *queue) pop() {
	e := &q.entries[q.head]
	if e.what == ordinary && e.n > 1 {
		e.n--
		return
	}
	if q.head++; q.head == len(q.entries) {
		q.entries, q.head = q.entries[:0], 0
	}
}
