package session

import (
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Redis' replies to COMMAND and its subcommands, with the lock verbs added. The embedded store answers all of them
// with its whole table, so each of these can work from the table too.

// asked runs the command as it came. It answers an error itself, and then says so.
func (s *Session) asked(args [][]byte) (r resp.Reply, ok bool) {
	answer, err := s.askRaw(resp.Command(args))
	if err == nil {
		if _, bad := resp.ErrorLine(answer); !bad {
			if r, ok = resp.ParseReply(answer); ok {
				return r, true
			}
		}
	}
	s.relay(answer, err)
	return r, false
}

// commandReply runs the command as it came, and has what Redis replied added to.
func (s *Session) commandReply(args [][]byte, add func(r commands.CommandReply) []byte) {
	if r, ok := s.asked(args); ok {
		s.batch.out = add(commands.CommandReply{Reply: r, Proto: s.ident.Proto, Table: s.srv.o.Embedded && len(r.Elems) > 0 && r.Elems[0].IsList()})
	}
}

// commandAll is COMMAND, and whatever subcommand is not known here.
func (s *Session) commandAll(args [][]byte) {
	s.commandReply(args, func(r commands.CommandReply) []byte {
		if len(args) > 1 {
			return append(s.batch.out, r.Raw...)
		}
		return r.AppendAll(s.batch.out)
	})
}

func (s *Session) commandCount(args [][]byte) {
	s.commandReply(args, func(r commands.CommandReply) []byte { return r.AppendCount(s.batch.out) })
}

func (s *Session) commandInfo(args [][]byte) {
	s.commandReply(args, func(r commands.CommandReply) []byte { return r.AppendInfo(s.batch.out, args) })
}

func (s *Session) commandDocs(args [][]byte) {
	s.commandReply(args, func(r commands.CommandReply) []byte { return r.AppendDocs(s.batch.out, args) })
}

func (s *Session) commandList(args [][]byte) {
	s.commandReply(args, func(r commands.CommandReply) []byte { return r.AppendList(s.batch.out, args) })
}

// commandGetKeys is COMMAND GETKEYS, and GETKEYSANDFLAGS, of a lock verb; of other commands Redis' answer.
func (s *Session) commandGetKeys(args [][]byte) {
	var v *commands.Verb
	if len(args) > 2 {
		v = commands.Lookup(args[2])
	}
	if v == nil {
		s.relay(s.askRaw(resp.Command(args)))
		return
	}
	if err := s.refused(); err != nil {
		s.fail(err)
		return
	}
	if v.Wraps && commandtable.ArityFits(v.Arity, len(args)-2) {
		s.fencedKeys(v, args)
		return
	}
	if !commandtable.ArityFits(v.Arity, len(args)-2) {
		s.error("ERR Invalid number of arguments specified for command")
		return
	}
	s.batch.out = v.AppendKeys(s.batch.out, args)
}

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
	if err != nil || bad && line != commands.NoKeys || !bad && !ok {
		s.relay(answer, err)
		return
	}
	s.batch.out = v.AppendInnerKeys(s.batch.out, s.ident.Proto, args, r)
}
