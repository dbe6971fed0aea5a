package session

import (
	"bytes"
	"slices"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/upstream"
)

// answer appends exactly one reply to the batch, or ends the connection.
type answer func(s *Session, args [][]byte)

// answers is the command table, with the functions that answer the commands that lockproxy answers itself. It never
// changes.
type answers struct {
	*commandtable.Table
	by map[*commandtable.Command]answer
}

// newAnswers makes the table; told is what Redis says of its commands.
func newAnswers(allow, deny []string, told []*commandtable.Command) *answers {
	a := &answers{Table: commandtable.New(allow, deny, commands.Rows(), told),
		by: make(map[*commandtable.Command]answer)}
	a.All(func(c *commandtable.Command) {
		if c.Here {
			a.by[c] = checked(c, answering(commands.AnswerOf(c)))
		}
	})
	return a
}

// findRow returns a command's row, nil if it has none, and the function that answers it here; nil: it is forwarded.
func (a *answers) findRow(args [][]byte) (*commandtable.Command, answer) {
	c := a.Table.Find(args)
	return a.withAnswer(c)
}

// withAnswer returns c, and the function that answers it here; nil: none.
func (a *answers) withAnswer(c *commandtable.Command) (*commandtable.Command, answer) {
	if c == nil || !c.Here {
		return c, nil
	}
	return c, a.by[c]
}

// answering runs an answer of package commands. The reply that this returns comes after those that it gave, or flushed,
// meanwhile.
func answering(run commands.Answer) answer {
	return func(s *Session, args [][]byte) {
		b := s.batch
		if b.caller.Client == nil {
			b.caller = commands.Client{Client: s.client, Session: s, Access: &s.access, Forwarder: s.pipes,
				Proxy: &s.srv.clients, Operator: s.srv.Operators()}
		}
		b.answer = run(&b.caller, args, b.answer[:0])
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
		if err := s.access.mistake(c, args); err != nil {
			s.client.Fail(err)
			return
		}
		run(s, args)
	}
}

// mistake returns the error with which Redis would refuse this call of c without running it, or nil.
func (a *access) mistake(c *commandtable.Command, args [][]byte) error {
	if !commandtable.ArityFits(c.Arity, len(args)) {
		return &upstream.ReplyError{Line: commandtable.WrongArity(c.Name)}
	}
	if c.Probe == nil {
		return nil
	}
	if line := a.forbidden(c); line != "" {
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
	commandtable.MayBlock(told, s.o.Blocking)
	rules := s.facts.rules.Load()
	allow := rules.Allow
	if s.o.Cluster != nil { // there MONITOR is refused whatever is allowed, with that reason
		allow = append(slices.Clone(allow), "monitor")
	}
	t := newAnswers(allow, rules.Deny, told)
	if s.o.Cluster != nil {
		t.All(func(c *commandtable.Command) {
			if !c.Refusal {
				c.Clustered = commandtable.ClusteredOf(c.Name)
			}
		})
	}
	return t
}

// refusal is the error for a command of a client that must log in first. Redis 7 looks for the command, and at the number
// of its words, before it asks who the client is.
func (a *answers) refusal(args [][]byte) error {
	switch c, _ := a.findRow(args); {
	case c == nil:
		return &upstream.ReplyError{Line: unknownCommand(args)}
	case !commandtable.ArityFits(c.Arity, len(args)):
		return &upstream.ReplyError{Line: c.NotRun(commandtable.WrongArity(c.Name))}
	default:
		return &upstream.ReplyError{Line: c.NotRun(noAuth)}
	}
}

// unknownCommand is what Redis says of a command that it does not have.
func unknownCommand(args [][]byte) string {
	var rest []byte
	for _, word := range args[1:] {
		if len(rest) >= commands.ClipMost {
			break
		}
		rest = append(rest, '\'')
		rest = append(append(rest, commands.Clip(word, commands.ClipMost+1-len(rest))...), "' "...)
	}
	return "ERR unknown command '" + commands.Clip(args[0], commands.ClipMost) + "', with args beginning with: " +
		string(rest)
}
