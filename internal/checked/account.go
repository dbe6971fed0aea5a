package checked

import (
	"errors"
	"regexp"
	"strconv"
)

var (
	errUnasked   = errors.New("a reply that nobody asked for")
	errConfirmed = errors.New("the confirmation of a subscription that nobody asked for")
	errSubscribe = errors.New("a reply to SUBSCRIBE that is neither a confirmation nor an error")
	// errUnsubscribe also ends connections to a Redis that is loading or busy: it refuses both UNSUBSCRIBE and the
	// PING that rueidis sends behind it, and rueidis takes the first refusal for the answer to both.
	errUnsubscribe = errors.New("a reply to UNSUBSCRIBE, and the PING behind it, that is not PONG")
)

// kind is what a command is answered with.
type kind uint8

const (
	nothing      kind = iota // there is no command
	ordinary                 // a reply
	subscribes               // a confirmation for each channel, or an error
	unsubscribes             // any number of confirmations, and the PONG to the PING behind it; or an error first
	pongs                    // that PONG, behind an error
)

// verbs are the commands that are not answered with a reply alone.
var verbs = map[string]kind{
	"SUBSCRIBE": subscribes, "PSUBSCRIBE": subscribes, "SSUBSCRIBE": subscribes,
	"UNSUBSCRIBE": unsubscribes, "PUNSUBSCRIBE": unsubscribes, "SUNSUBSCRIBE": unsubscribes,
}

// confirmations are the names of messages that confirm a subscription (true) or its end.
var confirmations = map[string]bool{
	"subscribe": true, "psubscribe": true, "ssubscribe": true,
	"unsubscribe": false, "punsubscribe": false, "sunsubscribe": false,
}

// command is one that was sent.
type command struct {
	what     kind
	channels int // of a subscription
}

// account is what was asked and has no reply yet. It is kept as rueidis keeps it (pipe.go, _backgroundRead), so that
// what is a reply to nothing here would be one there, too.
type account struct {
	open     []command
	begun    bool
	resp2    bool // a connection for subscriptions to a Redis before 6: its messages are arrays
	listens  bool // a subscription was asked for
	closing  bool // the last command was UNSUBSCRIBE, behind which rueidis sends PING
	confirms int  // confirmations still to come of a subscription that has had its first
}

// noteAsked notes a command, of which there is the beginning.
func (a *account) noteAsked(head frame) {
	_, words, rest, _ := next(head)
	_, verb, rest, _ := next(rest)
	if !a.begun {
		_, first, _, _ := next(rest)
		a.begun, a.resp2 = true, string(verb)+string(first) != "HELLO3"
	}
	if a.closing && string(verb) == "PING" {
		a.closing = false
		return
	}
	what := max(verbs[string(verb)], ordinary)
	a.listens = a.listens || what == subscribes
	a.closing = what == unsubscribes
	n, _ := strconv.Atoi(string(words))
	a.open = append(a.open, command{what, n - 1})
}

// nextKind is the kind of the oldest command.
func (a *account) nextKind() kind {
	if len(a.open) == 0 {
		return nothing
	}
	return a.open[0].what
}

// done takes the oldest command off. The place of the last one is used again, so that a connection with one command at a
// time takes no memory for each.
func (a *account) done() {
	if len(a.open) == 1 {
		a.open = a.open[:0]
		return
	}
	a.open = a.open[1:]
}

// noteAnswer finds what a reply, or a message, belongs to.
func (a *account) noteAnswer(f frame) error {
	if err := f.judge(); err != nil {
		return err
	}
	name, elements := f.name()
	if a.message(f[0], name, elements) {
		return a.confirm(name, elements)
	}
	switch a.nextKind() {
	case nothing:
		return errUnasked
	case subscribes:
		if f[0] != '-' || string(name) == "QUEUED" {
			return errSubscribe
		}
	case unsubscribes:
		// A node of a cluster that does not have the slot any more refuses. rueidis waits for the PONG behind that.
		if _, line, _, _ := next(f); f[0] == '-' && !takenForPong.Match(line) {
			a.open[0].what = pongs
			return nil
		}
		fallthrough
	case pongs:
		if said := string(f[:1]) + string(name); said != "+PONG" && said != "*pong" {
			return errUnsubscribe
		}
	}
	a.done()
	return nil
}

// message says whether a frame belongs to no command by itself.
func (a *account) message(typ byte, name []byte, elements int) bool {
	switch {
	case typ == '>':
		return true
	case !a.resp2, elements == 0, string(name) == "pong":
		return false
	}
	_, confirms := confirmations[string(name)]
	return a.listens || confirms
}

// takenForPong are errors of UNSUBSCRIBE that rueidis takes for the PONG (isUnsubReply), or for a transaction's.
var takenForPong = regexp.MustCompile(`^(PONG$|QUEUED$|LOADING|BUSY)|'ping'`)

// confirm notes the confirmation of a subscription, if the message is one. Redis ends subscriptions also when nobody
// asked for that. rueidis takes no notice of messages of less than two elements.
func (a *account) confirm(name []byte, elements int) error {
	begins, is := confirmations[string(name)]
	switch {
	case !is, elements < 2:
	case a.confirms > 0:
		a.confirms--
	case !begins:
	case a.nextKind() != subscribes:
		return errConfirmed
	default:
		a.confirms = a.open[0].channels - 1
		a.done()
	}
	return nil
}
