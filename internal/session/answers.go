package session

import (
	"bytes"
	"strings"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// answer appends exactly one reply to the batch, or ends the connection.
type answer func(s *Session, args [][]byte)

// answers is the table of commands with who answers those that are answered here. It never changes.
type answers struct {
	*commandtable.Table
	by     map[*commandtable.Command]answer
	routes *backend.Routes
}

// answerers are the commands that are answered here, but for the lock verbs, refusals, and CLUSTER's subcommands.
var answerers = map[string]answer{
	"auth":                    (*Session).auth,
	"hello":                   (*Session).hello,
	"select":                  (*Session).selectDB,
	"reset":                   (*Session).reset,
	"quit":                    (*Session).quit,
	"post":                    (*Session).crossProtocol,
	"host:":                   (*Session).crossProtocol,
	"readonly":                (*Session).clusterSwitch,
	"readwrite":               (*Session).clusterSwitch,
	"asking":                  (*Session).clusterSwitch,
	"cluster":                 (*Session).cluster,
	"script|kill":             (*Session).apart,
	"function|kill":           (*Session).apart,
	"info":                    (*Session).info,
	"client":                  unknownSubcommand,
	"client|id":               (*Session).clientID,
	"client|setname":          (*Session).clientSetName,
	"client|getname":          (*Session).clientGetName,
	"client|setinfo":          (*Session).clientSetInfo,
	"client|capa":             (*Session).clientCapa,
	"client|info":             (*Session).clientInfo,
	"client|list":             (*Session).clientList,
	"client|kill":             (*Session).clientKill,
	"client|pause":            (*Session).clientPause,
	"client|unpause":          (*Session).clientUnpause,
	"client|unblock":          (*Session).clientUnblock,
	"client|reply":            (*Session).clientReply,
	"client|no-evict":         (*Session).clientNoEvict,
	"client|no-touch":         (*Session).clientNoTouch,
	"client|getredir":         (*Session).clientGetRedir,
	"client|trackinginfo":     (*Session).clientTrackingInfo,
	"client|help":             (*Session).clientHelp,
	"command":                 (*Session).commandAll,
	"command|count":           (*Session).commandCount,
	"command|info":            (*Session).commandInfo,
	"command|docs":            (*Session).commandDocs,
	"command|list":            (*Session).commandList,
	"command|getkeys":         (*Session).commandGetKeys,
	"command|getkeysandflags": (*Session).commandGetKeys,
}

// newAnswers makes the table of what Redis told of its commands.
func newAnswers(allow, deny []string, told []*commandtable.Command) *answers {
	a := &answers{Table: commandtable.New(allow, deny, verbs(), told)}
	a.routes = &backend.Routes{Table: a.Table}
	a.bind()
	return a
}

// verbs are the lock verbs' rows.
func verbs() (rows []*commandtable.Command) {
	for _, v := range commands.Verbs() {
		rows = append(rows, &commandtable.Command{Name: strings.ToLower(v.Name), Note: v.Summary, Open: true, Barred: true, Here: true})
	}
	return rows
}

// bind finds out who answers which command.
func (a *answers) bind() {
	a.by = make(map[*commandtable.Command]answer)
	a.All(func(c *commandtable.Command) {
		if c.Here {
			a.by[c] = checked(c, answererOf(c))
		}
	})
}

// answererOf is who answers c, checks aside.
func answererOf(c *commandtable.Command) answer {
	switch v := commands.Lookup([]byte(c.Name)); {
	case c.Name == "script|debug":
		return func(s *Session, args [][]byte) { s.refuseDebug(c.Line, args) }
	case c.Refusal:
		return func(s *Session, _ [][]byte) { s.error(c.Line) }
	case v != nil:
		return func(s *Session, args [][]byte) { s.runVerb(v, args) }
	}
	if run := answerers[c.Name]; run != nil {
		return run
	}
	return (*Session).clusterNode // of what Redis has listed
}

// find classifies a command: what the table says of it, if anything, and who answers it here; nil: it is forwarded.
func (a *answers) find(args [][]byte) (*commandtable.Command, answer) {
	c, _ := a.Table.Find(args)
	return a.answered(c)
}

// answered is c with who answers it here; nil: nobody.
func (a *answers) answered(c *commandtable.Command) (*commandtable.Command, answer) {
	if c == nil || !c.Here {
		return c, nil
	}
	return c, a.by[c]
}

// checked has what Redis would check first checked before run.
func checked(c *commandtable.Command, run answer) answer {
	return func(s *Session, args [][]byte) {
		if err := s.mistake(c, args); err != nil {
			s.fail(err)
			return
		}
		run(s, args)
	}
}

// mistake is what Redis would have against such a call of c, whatever it does.
func (s *Session) mistake(c *commandtable.Command, args [][]byte) error {
	if !commandtable.ArityFits(c.Arity, len(args)) {
		return &upstream.ReplyError{Line: wrongArity(c.Name)}
	}
	if c.Open {
		return nil
	}
	if err := s.refused(); err != nil || c.Probe == nil {
		return err
	}
	if line := s.forbidden(c); line != "" {
		return &upstream.ReplyError{Line: line}
	}
	return nil
}

// equalFold compares a word of a command with a keyword, letter case aside.
func equalFold(word []byte, keyword string) bool { return bytes.EqualFold(word, []byte(keyword)) }

func unknownSubcommand(s *Session, args [][]byte) {
	s.error("ERR unknown subcommand '" + commands.Clip(args[1]) + "'. Try " + strings.ToUpper(string(args[0])) + " HELP.")
}

// newTable makes the table of what Redis told of its commands.
func (s *Server) newTable(told []*commandtable.Command) *answers {
	commandtable.MayBlock(told, s.facts.blocking.names())
	rules := s.facts.rules.Load()
	return newAnswers(rules.Allow, rules.Deny, told)
}

// Redis' replies to COMMAND and its subcommands, with the lock verbs added. The embedded store answers all of them
// with its whole table, so each of these can work from the table too.

// asked runs the command as it came. It answers an error itself, and then says so.
func (s *Session) asked(args [][]byte) (r resp.Reply, ok bool) {
	answer, err := s.askAt(backend.Place{}, args...)
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
		s.batch.Out = add(commands.CommandReply{Reply: r, Proto: s.ident.Proto, Table: s.srv.o.Embedded && len(r.Elems) > 0 && r.Elems[0].IsList()})
	}
}

// commandAll is COMMAND, and whatever subcommand is not known here.
func (s *Session) commandAll(args [][]byte) {
	s.commandReply(args, func(r commands.CommandReply) []byte {
		if len(args) > 1 {
			return append(s.batch.Out, r.Raw...)
		}
		return r.AppendAll(s.batch.Out)
	})
}

func (s *Session) commandCount(args [][]byte) {
	s.commandReply(args, func(r commands.CommandReply) []byte { return r.AppendCount(s.batch.Out) })
}

func (s *Session) commandInfo(args [][]byte) {
	s.commandReply(args, func(r commands.CommandReply) []byte { return r.AppendInfo(s.batch.Out, args) })
}

func (s *Session) commandDocs(args [][]byte) {
	s.commandReply(args, func(r commands.CommandReply) []byte { return r.AppendDocs(s.batch.Out, args) })
}

func (s *Session) commandList(args [][]byte) {
	s.commandReply(args, func(r commands.CommandReply) []byte { return r.AppendList(s.batch.Out, args) })
}

// commandGetKeys is COMMAND GETKEYS, and GETKEYSANDFLAGS, of a lock verb; of other commands Redis' answer.
func (s *Session) commandGetKeys(args [][]byte) {
	var v *commands.Verb
	if len(args) > 2 {
		v = commands.Lookup(args[2])
	}
	if v == nil {
		s.relay(s.askAt(backend.Place{}, args...))
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
	s.batch.Out = v.AppendKeys(s.batch.Out, args)
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
	answer, err := s.askAt(backend.Place{}, append([][]byte{args[0], args[1]}, inner...)...)
	line, bad := resp.ErrorLine(answer)
	r, ok := resp.ParseReply(answer)
	if err != nil || bad && line != commands.NoKeys || !bad && !ok {
		s.relay(answer, err)
		return
	}
	s.batch.Out = v.AppendInnerKeys(s.batch.Out, s.ident.Proto, args, r)
}
