package session

import (
	"errors"
	"strings"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// noKeys is Redis' answer to COMMAND GETKEYS of a command without keys.
const noKeys = "ERR The command has no key arguments"

// fencedKeys is COMMAND GETKEYS, or GETKEYSANDFLAGS, of FENCED: the lock, and what Redis says of the command within.
func (s *Session) fencedKeys(v *commands.Verb, args [][]byte) {
	inner := v.Inner(args[2:])
	if len(inner) == 0 {
		s.error("ERR Invalid number of arguments specified for command")
		return
	}
	if len(inner) == 1 { // Redis wants an argument
		inner = append(inner[:1:1], nil)
	}
	answer, err := s.askRaw(resp.Command(append([][]byte{args[0], args[1]}, inner...)))
	line, bad := resp.ErrorLine(answer)
	r, ok := resp.ParseReply(answer)
	if err != nil || bad && line != noKeys || !bad && !ok {
		s.relay(answer, err)
		return
	}
	out := resp.AppendArray(s.batch.out, 1+len(r.Elems))
	if key := args[3]; strings.EqualFold(string(args[1]), "GETKEYSANDFLAGS") {
		flags := v.KeyFlags()
		out = resp.AppendBulk(resp.AppendArray(out, 2), key)
		out = resp.AppendSet(out, s.ident.Proto, len(flags))
		for _, flag := range flags {
			out = resp.AppendSimple(out, flag)
		}
	} else {
		out = resp.AppendBulk(out, key)
	}
	for _, e := range r.Elems {
		out = append(out, e.Raw...)
	}
	s.batch.out = out
}

// watched is WATCH of the lock, and of what else tells that it is held.
func (f *fence) watched() []string {
	if f.hold == "" {
		return []string{"WATCH", f.r.Key}
	}
	return []string{"WATCH", f.r.Key, f.hold}
}

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
