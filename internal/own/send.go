package own

import (
	"slices"
	"strings"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Failed answers a command for which there is no connection.
func (o *Connections) Failed(c *commandtable.Command, err error) {
	o.notBegun(c.Conn, err)
	o.Trouble(err)
}

// notBegun fails a command of that kind, which was not run. What follows MULTI or WATCH would do harm without them, so
// it is remembered that they are lost; not if the client lacks a password, because Redis refuses what follows then,
// too.
func (o *Connections) notBegun(k commandtable.ConnKind, err error) {
	switch {
	case client.LogIn(err), o.client.Closes(err):
	case k == commandtable.ConnMulti:
		o.lose(lostTransaction, err)
		o.client.OK()
		return
	case k == commandtable.ConnWatch:
		o.lose(lostWatch, err)
	}
	o.client.Fail(err)
}

// forwarded counts a command of the client's that goes to Redis as it came: once, also when several nodes get it one
// after the other.
func forwarded() { telemetry.Commands.Add(1) }

// send relays one command.
func (o *Connections) send(p *conn, cmd redcon.Command, c *commandtable.Command) {
	e := &dedicated.Reply{Cmd: c, Kind: c.Conn, Args: len(cmd.Args) - 1}
	switch e.Kind {
	case commandtable.ConnBlock, commandtable.ConnWait:
		e.Wait = dedicated.Wait{Blocks: true, For: c.WaitsFor(cmd.Args)}
	case commandtable.ConnSubscribe:
		p.Taint() // messages in the midst of replies are told from these as well as can be, but nobody else relies on that
	case commandtable.ConnTracking:
		p.Taint() // Redis forgets only later what a connection has read, and would tell the next client that turns tracking on there
		cmd.Raw = p.tracking(e, cmd)
	}
	forwarded()
	p.note(c, cmd.Args)
	if p.Send(e, cmd.Raw); e.Wait.Blocks { // what comes behind it waits, as at Redis
		p.Wait()
	}
}

// note notes whether a command that is about to be sent may change users' rights, and whether others may use the
// connection after it.
func (p *conn) note(c *commandtable.Command, args [][]byte) {
	if p.o.Common.Echoes(c) {
		p.Taint()
	}
	if c.Rights {
		p.rights.Note(c, args)
	}
}

// leaves says that a command is answered here in a transaction, too: QUIT, and RESET unless Redis would refuse it for
// its arguments.
func leaves(c *commandtable.Command, cmd redcon.Command) bool {
	return c.Always && commandtable.ArityFits(c.Arity, len(cmd.Args))
}

// queue sends a command to be queued in a transaction. here: lockproxy answers the command outside of transactions.
func (o *Connections) queue(p *conn, cmd redcon.Command, c *commandtable.Command, here bool) {
	e := &dedicated.Reply{Cmd: c}
	if strings.HasPrefix(c.Name, "client|") || c.Conn == commandtable.ConnSubscribe {
		p.Taint() // what it sets on the connection is this client's; for SUBSCRIBE see send
	}
	if here {
		cmd.Raw, e.Effect = commands.Queued(c, cmd, p.nameThen(), o.Routes.Load().Table.Learned())
	}
	if tx := p.slots.tx; tx != nil {
		e.InMulti = true
		if tx.slot == backend.NoSlot {
			tx.keep(queuedCommand{slices.Clone(cmd.Raw), c, e.Effect}, cmd.Args)
		}
	}
	forwarded()
	p.note(c, cmd.Args)
	p.Send(e, cmd.Raw)
}

// nameThen is what the client is called when the command is run that is queued next.
func (p *conn) nameThen() string {
	if name := p.Status().Named; name != nil {
		return *name
	}
	return p.o.client.Name()
}

// bar answers a command that is not allowed in a transaction, and makes Redis mark the transaction as one that EXEC
// aborts.
func (p *conn) bar(c *commandtable.Command) {
	line := notInMulti
	if c.Name == "" { // it is refused for another reason than what it is
		line = c.Line
	}
	p.barAs(line)
}

// barAs is bar with that error.
func (p *conn) barAs(line string) {
	p.Send(&dedicated.Reply{Instead: line}, marking)
}

// marking is a command without its argument: Redis, and the embedded store, refuse it and mark the transaction.
var marking = resp.AppendCommand(nil, "GET")

const notInMulti = "ERR Command not allowed inside a transaction"

// sendUndo has p's node end the transaction, if it has not ended it already.
func (p *conn) sendUndo() {
	p.slots.unwatched()
	if p.InTransaction() {
		p.Own(&dedicated.Reply{Kind: commandtable.ConnDiscard}, discardCommand)
	}
}

var discardCommand = resp.AppendCommand(nil, "DISCARD")

// isNoSubcommand says that the command is one that has subcommands, and none of them.
func isNoSubcommand(c *commandtable.Command, cmd redcon.Command) bool {
	return c.Subs != nil && len(cmd.Args) > 1
}

// refuseMute answers a subscriber in RESP2 that sends what it may not, or with a wrong number of words.
func refuseMute(to *client.Client, cmd redcon.Command, c *commandtable.Command) {
	switch {
	case c.Name == "":
		to.Error(c.Line)
	case !commandtable.ArityFits(c.Arity, len(cmd.Args)):
		to.Error(c.NotRun(commandtable.WrongArity(c.Name)))
	default:
		to.Error(c.NotRun("ERR Can't execute '" + c.Name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"))
	}
}
