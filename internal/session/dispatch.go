package session

import (
	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// call is a command on its way.
type call struct {
	redcon.Command
	row    *commandtable.Command // what is known of it; nil: Redis has not listed it
	answer answer                // answers it here; nil: it is forwarded
	over   bool                  // it has been dealt with
}

// refuse has the command not be run; answer says so.
func (c *call) refuse(row *commandtable.Command, answer answer) { c.row, c.answer = row, answer }

// command runs one command, whether its reply is wanted or not.
func (s *Session) command(cmd redcon.Command) {
	if !s.client.Replies.Skip {
		s.dispatch(cmd)
		return
	}
	s.pipes.Send()
	s.client.WithoutReply(func() {
		s.dispatch(cmd)
		s.writeAll()
	})
}

// dispatch is a command's way. What its client, or the process, is just now comes first, which is seldom anything: it
// may have the command wait, or be refused. Then the command goes to a connection of the client's own, or joins the run
// that is to be forwarded, or is answered here.
func (s *Session) dispatch(cmd redcon.Command) {
	t := s.srv.facts.table.Load()
	c := call{Command: cmd}
	c.row, c.answer = t.findRow(cmd.Args)
	if c.row != nil {
		s.activity.last.Store(&c.row.Name)
	}
	switch {
	case s.unusual(t, &c) && s.heldUp(&c):
	case s.own.Concerns(c.row) && s.ranOnOwn(&c):
	case c.answer == nil && s.forwards(&c):
	default:
		s.answerHere(&c)
	}
}

// unusual says that a command is not known, or that its client or the process may have it wait, or be refused, whatever
// it is.
func (s *Session) unusual(t *answers, c *call) bool {
	if c.row == nil || c.answer == nil && !t.Learned() {
		return true
	}
	return s.access.login() < served || s.client.Debugs
}

// heldUp takes a command through the steps of what is unusual, each of which may end its way.
func (s *Session) heldUp(of *call) (over bool) {
	c := *of // so that what is usual stays on the stack
	for _, step := range unusualSteps {
		if step(s, &c); c.over || s.client.End.Over() {
			return true
		}
	}
	*of = c
	return false
}

// unusualSteps are taken in this order.
var unusualSteps = []func(s *Session, c *call){
	(*Session).answerAtSocket, // the admin socket has answers of its own
	(*Session).prepare,        // protected mode; a login by certificate; the limits of clients that must log in
	(*Session).awaitTable,     // Redis tells which commands it has
	(*Session).undebugged,     // a script is not run that was to be debugged
	(*Session).resolve,        // Redis is asked what a command is that it has not listed
	(*Session).admit,          // Redis is asked whether it serves the client
}

// ranOnOwn runs a command on a connection of the client's own, where it concerns one or needs one. All earlier commands
// have been forwarded.
func (s *Session) ranOnOwn(c *call) (taken bool) {
	if s.pipes.Send(); s.client.End.Over() {
		return true
	}
	taken = s.own.Run(c.Command, s.batch.next, c.row, c.answer != nil)
	s.batch.Timing.Elsewhere()
	return taken
}

// admit answers a command of a client that Redis does not serve. The commands that are open to all ask for themselves
// where they must.
func (s *Session) admit(c *call) {
	if c.row.Open || c.row.Refusal {
		return
	}
	err, operates := s.access.Admitted(), commands.IsOperation(c.row)
	if err != nil && operates {
		err = s.srv.refusedOperator(err)
	}
	if err == nil {
		return
	}
	s.pipes.Send()
	switch {
	case operates, commands.Lookup([]byte(c.row.Name)) != nil: // an operator and a holder learn why, and are not closed
		s.client.Error(client.ErrorLine(err))
	case client.LogIn(err):
		s.client.Fail(s.srv.facts.table.Load().refusal(c.Args))
	default:
		s.own.Failed(c.row, err)
	}
	c.over = true
}

// forwards has a command join the run; false: something answers it in place of a Redis.
func (s *Session) forwards(c *call) bool {
	if row := c.row; row.Clustered.How != commandtable.ClusteredSent {
		c.answer = checked(row, func(s *Session, args [][]byte) { s.client.Relay(s.pipes.Ask(args, backend.AsWhole(row))) })
		return false
	}
	s.pipes.Add(c.Raw, c.Args, c.row)
	return true
}

// answerHere answers a command here, once the run has been forwarded.
func (s *Session) answerHere(c *call) {
	if s.pipes.Send(); s.client.End.Over() {
		return
	}
	s.batch.Timing.Elsewhere()
	defer s.client.Unwatch()
	c.answer(s, c.Args)
	if s.batch.Full() || s.client.Watched() { // a verb that has waited is answered before the watch is ended
		s.client.Flush()
	}
}
