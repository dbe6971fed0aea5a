package session

import (
	"bytes"
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/upstream"
)

// answer appends exactly one reply to the batch, or ends the connection.
type answer func(s *Session, args [][]byte)

// answers is the command table, with the functions that answer the commands that lockproxy answers itself. It never changes.
type answers struct {
	*commandtable.Table
	by map[*commandtable.Command]answer
}

// newAnswers makes the table; told is what Redis says of its commands.
func newAnswers(allow, deny []string, told []*commandtable.Command) *answers {
	a := &answers{Table: commandtable.New(allow, deny, commands.Rows(), told), by: make(map[*commandtable.Command]answer)}
	a.All(func(c *commandtable.Command) {
		if c.Here {
			a.by[c] = checked(c, answering(commands.AnswerOf(c)))
		}
	})
	return a
}

// find returns a command's row, nil if it has none, and the function that answers it here; nil: it is forwarded.
func (a *answers) find(args [][]byte) (*commandtable.Command, answer) {
	c := a.Table.Find(args)
	return a.answered(c)
}

// answered returns c, and the function that answers it here; nil: none.
func (a *answers) answered(c *commandtable.Command) (*commandtable.Command, answer) {
	if c == nil || !c.Here {
		return c, nil
	}
	return c, a.by[c]
}

// answering runs an answer of package commands. The reply that this returns comes after those that it gave, or flushed, meanwhile.
func answering(run commands.Answer) answer {
	return func(s *Session, args [][]byte) {
		b := s.batch
		b.answer = run(s, args, b.answer[:0])
		if cap(b.answer) > keepBytes {
			b.Take(b.answer)
			b.answer = nil
			return
		}
		b.Bytes = append(b.Bytes, b.answer...)
	}
}

// checked makes the checks that Redis would make first, and then calls run.
func checked(c *commandtable.Command, run answer) answer {
	return func(s *Session, args [][]byte) {
		if err := s.mistake(c, args); err != nil {
			s.client.Fail(err)
			return
		}
		run(s, args)
	}
}

// mistake returns the error with which Redis would refuse this call of c without running it, or nil.
func (s *Session) mistake(c *commandtable.Command, args [][]byte) error {
	if !commandtable.ArityFits(c.Arity, len(args)) {
		return &upstream.ReplyError{Line: commandtable.WrongArity(c.Name)}
	}
	if c.Open {
		return nil
	}
	err := s.refused()
	if err != nil && commands.IsOperation(c) {
		return s.refusedOperator(err)
	}
	if err != nil || c.Probe == nil {
		return err
	}
	if line := s.forbidden(c); line != "" {
		return &upstream.ReplyError{Line: line}
	}
	return nil
}

// equalFold compares a word of a command with a keyword, letter case aside.
func equalFold(word []byte, keyword string) bool { return bytes.EqualFold(word, []byte(keyword)) }

// setTable puts a new table in force; told is what Redis says of its commands.
func (s *Server) setTable(told []*commandtable.Command) {
	t := s.newTable(told)
	s.up.common.Routes.Store(&backend.Routes{Table: t.Table})
	s.facts.table.Store(t)
}

// newTable makes the table under the present rules; told is what Redis says of its commands.
func (s *Server) newTable(told []*commandtable.Command) *answers {
	commandtable.MayBlock(told, s.facts.blocking.names())
	rules := s.facts.rules.Load()
	allow := rules.Allow
	if s.o.Cluster != nil { // there MONITOR is refused whatever is allowed, with that reason
		allow = append(slices.Clone(allow), "monitor")
	}
	return newAnswers(allow, rules.Deny, told)
}

// The session is the commands.Client that answers use. Each part of that interface is in the file with the state that it reads or
// changes: identity.go, locks.go, ask.go, setting.go, and client.go.

var _ commands.Client = (*Session)(nil)

// Commands implements commands.Redis.
func (s *Session) Commands() *commandtable.Table { return s.srv.facts.table.Load().Table }

// Give implements commands.Connection.
func (s *Session) Give(reply []byte) { s.client.Give(reply) }

// Flush implements commands.Connection.
func (s *Session) Flush() { s.client.Flush() }

// MayHold implements commands.Connection.
func (s *Session) MayHold(n int) bool { return s.client.MayHold(n) }

// Fail implements commands.Connection.
func (s *Session) Fail(out []byte, err error) []byte { return s.client.Failed(out, err) }

// Name implements commands.Settings.
func (s *Session) Name() string { return s.client.Name() }

// Set implements commands.Settings.
func (s *Session) Set(t client.Setting) { s.client.Set(t) }

// Traced implements commands.Locker.
func (s *Session) Traced(ctx context.Context) context.Context { return s.client.Traced(ctx) }
