package session

import (
	"errors"
	"strings"

	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/upstream"
)

// answerTo is the answer to a question that was sent as e, or (nil) is asked elsewhere now, so that the client is not told of a key
// it never read. The key is watched already.
func (f *fence) answerTo(e *dedicated.Reply, question ...string) ([]byte, error) {
	if e != nil {
		return f.p.answer(e)
	}
	reply, err := f.s.ask(question...)
	if err == nil {
		err = ownError(reply)
	}
	return reply, err
}

// explain says of a NOPERM what else a reader's FENCED looks at.
func (f *fence) explain(err error) error {
	var refusal *upstream.ReplyError
	if f.hold == "" || !errors.As(err, &refusal) || !strings.HasPrefix(refusal.Line, "NOPERM ") {
		return err
	}
	return &upstream.ReplyError{Line: refusal.Line + "; by a reader it runs WATCH and EXISTS on the key of its hold, too, which is '" +
		lock.Printable(f.hold) + "'"}
}

// watched is WATCH of the lock, and of what else tells that it is held.
func (f *fence) watched() []string {
	if f.hold == "" {
		return []string{"WATCH", f.r.Key}
	}
	return []string{"WATCH", f.r.Key, f.hold}
}
