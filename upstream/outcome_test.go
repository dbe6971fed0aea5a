package upstream

import (
	"io"
	"testing"
	"time"
)

// TestOutcome is what became of a request, by what was sent of it, by whether it may be sent again, and by the time that is left.
func TestOutcome(t *testing.T) {
	t.Parallel()
	notSent := func(cause error) error { return &NotSentError{Cause: cause} }
	lost := func(cause error) error { return &LostError{Cause: cause} }
	for _, c := range []struct {
		how                            string
		err                            error
		once, onceLate, repeated, late Outcome // of what may be sent once, and again: with time left, and without
	}{
		{"all replies came", nil, Answered, Answered, Answered, Answered},
		{"Redis refuses the user", &ReplyError{Line: "WRONGPASS"}, Answered, Answered, Answered, Answered},
		{"no connection is allowed", &FullError{}, NotRun, NotRun, NotRun, NotRun},
		{"nothing was sent", notSent(io.EOF), SendAgain, NotRun, SendAgain, NotRun},
		{"nothing was sent, and the client has gone", notSent(ErrLeft), NotRun, NotRun, NotRun, NotRun},
		{"nothing was sent in time", notSent(ErrTimeout), NotRun, NotRun, NotRun, NotRun},
		{"nothing was sent to a slow node", notSent(ErrSlow), SendAgain, NotRun, SendAgain, NotRun},
		{"it was sent, whole or in part", lost(io.EOF), Unknown, Unknown, SendAgain, Unknown},
		{"it was sent, and the client has gone", lost(ErrLeft), Unknown, Unknown, Unknown, Unknown},
		{"it was sent, and had no answer in time", lost(ErrTimeout), Unknown, Unknown, Unknown, Unknown},
		{"it was sent to a slow node", lost(ErrSlow), Unknown, Unknown, SendAgain, Unknown},
		{"a question's connection broke", io.ErrUnexpectedEOF, Unknown, Unknown, SendAgain, Unknown},
	} {
		for _, a := range []struct {
			repeatable bool
			left       time.Duration
			want       Outcome
		}{{false, 1, c.once}, {false, 0, c.onceLate}, {true, 1, c.repeated}, {true, -1, c.late}} {
			if got := (Attempt{c.err, a.repeatable, a.left}).Outcome(); got != a.want {
				t.Errorf("%s, repeatable %v, %d left: %v, want %v", c.how, a.repeatable, a.left, got, a.want)
			}
		}
	}
}

// TestMeets is what a request does that finds a pipe without a connection.
func TestMeets(t *testing.T) {
	t.Parallel()
	refusal, away := &ReplyError{Line: "WRONGPASS"}, io.EOF
	for name, c := range map[string]struct {
		now          standing
		moved, fresh bool
		wakes, waits bool
	}{
		"an attempt is under way":                     {now: standing{phase: connecting, attempt: 1}, waits: true},
		"Redis was out of reach":                      {now: standing{phase: backingOff, cause: away}, wakes: true},
		"the same, of what was queued before":         {now: standing{phase: backingOff, cause: away}, moved: true, wakes: true, waits: true},
		"the same, of a newcomer":                     {now: standing{phase: backingOff, cause: away}, fresh: true, wakes: true},
		"Redis has refused":                           {now: standing{phase: backingOff, cause: refusal}, wakes: true},
		"the same, of what was queued, later":         {now: standing{phase: backingOff, cause: refusal}, moved: true, wakes: true},
		"the same, of a newcomer, later":              {now: standing{phase: backingOff, cause: refusal}, fresh: true, wakes: true, waits: true},
		"Redis has refused, and the back-off is over": {now: standing{phase: resting, cause: refusal}, wakes: true, waits: true},
		"closed": {now: standing{phase: ended}, moved: true, fresh: true},
	} {
		wakes, err := c.now.meets(c.moved, c.now.newest(c.fresh))
		if wakes != c.wakes || (err == nil) != c.waits {
			t.Errorf("%s: wakes %v, %v", name, wakes, err)
		}
	}
	answered := standing{phase: resting, cause: refusal, attempt: 2}
	if wakes, err := answered.meets(false, 2); wakes || Refused(err) == nil {
		t.Errorf("the refusal that was waited for: wakes %v, %v", wakes, err)
	}
}
