package node

import (
	"errors"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/upstream"
)

// Scripts run as the service account. If that lacked a right, a script would end in the middle, and a lock that was
// taken could not be given back. So a lock is first taken for a try: what is missing is logged, and no lock is given.

const (
	// askedEvery is how often Redis is asked about an account that lacks nothing; about one that does it is asked at
	// each sample of the clock.
	askedEvery = 10 * time.Second
	// askPause is for how long nobody waits for an answer after a question that got none, and for how long refusals
	// that may be about the names of a client's own locks do not lead to another question.
	askPause = time.Second
)

// found is what a node has answered to one question.
type found struct {
	verb    string // the command with which a node of a cluster publishes
	unheard int64  // how many channels of locks somebody hears whom that does not reach
	// Redis' words, if it lacks a right or a command that the probe's locks have needed; "": it lacks none
	cannot string
	evicts string // the policy by which the node evicts keys; "": it does not, or does not tell
}

// standing is what is known of a node. It is a value: what becomes of it is decided by the events below, which have no
// clock, no mutex and no Redis. standing_test.go has a table of them.
type standing struct {
	found
	fresh bool  // it is the answer to a question that began after the last reason to ask
	stale bool  // there was a reason to ask since the last question began, so its answer will not do
	ended bool  // a question, or the attempt to put one, has ended
	trial error // how the last one did: why no lock could be had; nil: one could
	era   int   // of the clock, at the answer: another master has users of its own

	began  time.Time // when the last question began
	failed time.Time // when a question got no answer last; zero: it has got one since
	next   time.Time // when to ask
}

// outdated: the node may be another than it was.
func (s standing) outdated() standing {
	s.fresh, s.stale = false, true
	return s
}

// refused: Redis has refused a script because a right or a command is missing. A refusal of keys may only be about the
// name that a client gave its lock. No client can make the proxy ask the node all the time by that, since the node is
// not asked again within askPause.
func (s standing) refused(line string, now time.Time) standing {
	switch {
	case s.refusal() != nil: // the node is asked at each sample of the clock
		return s
	case aboutKeys(line) && now.Sub(s.began) < askPause:
		s.next = time.Time{} // nobody waits for that
		return s
	}
	return s.outdated()
}

// asked: a question has begun.
func (s standing) asked(now time.Time) standing {
	s.began, s.stale = now, false
	return s
}

// afterAnswer: Redis has answered the question.
func (s standing) afterAnswer(f found, era int, now time.Time) standing {
	s = s.tried(nil)
	s.found, s.fresh, s.era = f, !s.stale, era
	s.failed, s.next = time.Time{}, now.Add(askedEvery)
	if s.refusal() != nil {
		s.next = time.Time{}
	}
	return s
}

// unanswered: the question has ended without an answer, or no lock could be had for another reason than a missing
// right.
func (s standing) unanswered(err error, now time.Time) standing {
	s.failed = now
	return s.tried(err)
}

// tried: a trial has ended, with an error if no lock could be had. That the slot of the trial lock is on its way to
// another node tells nothing: the next trial is in another slot.
func (s standing) tried(err error) standing {
	switch code, _, _ := strings.Cut(refusalIn(err), " "); code {
	case "MOVED", "ASK", "TRYAGAIN":
		return s
	}
	s.ended, s.trial = true, err
	return s
}

// silent says whether the last question got no answer a moment ago.
func (s standing) silent(now time.Time) bool { return now.Sub(s.failed) < askPause }

// due says whether it is time to ask.
func (s standing) due(era int, now time.Time) bool {
	return !s.fresh || era != s.era || !now.Before(s.next)
}

// refusal is why no lock is given; nil: nothing speaks against it.
func (s standing) refusal() error {
	if s.cannot == "" {
		return nil
	}
	return &upstream.ReplyError{Line: s.cannot + ", so no lock is given that could not be given back"}
}

// able is why no lock can be had; nil: one could.
func (s standing) able() error {
	switch refusal := s.refusal(); {
	case refusal != nil:
		return refusal
	case !s.ended:
		return lockstore.ErrUntried
	}
	return s.trial
}

// trialRefused is what Redis said when no lock could be had; "": one could, or Redis does not answer.
func (s standing) trialRefused() string {
	if s.cannot != "" {
		return s.cannot
	}
	return refusalIn(s.trial)
}

// refusalIn is what Redis said; "": it did not say anything.
func refusalIn(err error) string {
	if refusal, is := errors.AsType[*upstream.ReplyError](err); is {
		return refusal.Line
	}
	return ""
}

// lacking is Redis' line if it refused something because a right or a command is missing. Redis calls a missing command
// "unknown command", and in a script "unknown Redis command".
func lacking(err error) (line string, yes bool) {
	if err == nil { // spares the allocation that errors.AsType needs
		return "", false
	}
	line = refusalIn(err)
	return line, strings.HasPrefix(line, "NOPERM ") ||
		strings.Contains(strings.Replace(strings.ToLower(line), " redis", "", 1), "unknown command")
}

// aboutKeys says whether a refusal is about keys, or channels, rather than about a command.
func aboutKeys(line string) bool {
	return strings.Contains(line, " key") || strings.Contains(line, " channel")
}
