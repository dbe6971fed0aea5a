package commandtable

// ConnKind is what a command does to the state Redis keeps for its connection.
type ConnKind uint8

const (
	ConnNone  ConnKind = iota
	ConnAlone          // none, but it wants a connection of its own
	ConnBlock          // it may wait
	ConnWait           // WAIT, WAITAOF: about what this connection wrote last
	ConnMulti
	ConnExec
	ConnDiscard
	ConnWatch
	ConnUnwatch
	ConnSubscribe // also PSUBSCRIBE and SSUBSCRIBE, and UNSUBSCRIBE and its like
	ConnTracking
	ConnMonitor
)

// connKinds is what follows from the kind alone. EXEC without MULTI is an error on every connection, UNWATCH without
// WATCH changes none.
var connKinds = [...]struct{ starts, ends, cannotFail bool }{
	ConnNone:      {},
	ConnAlone:     {starts: true},
	ConnBlock:     {starts: true},
	ConnWait:      {starts: true},
	ConnMulti:     {starts: true, cannotFail: true},
	ConnExec:      {ends: true},
	ConnDiscard:   {ends: true},
	ConnWatch:     {starts: true, cannotFail: true},
	ConnUnwatch:   {},
	ConnSubscribe: {starts: true},
	ConnTracking:  {starts: true},
	ConnMonitor:   {starts: true},
}

// Starts says that a client without a connection of its own needs one for such a command.
func (k ConnKind) Starts() bool { return connKinds[k].starts }

// Ends says that such a command, without an argument, ends a transaction.
func (k ConnKind) Ends() bool { return connKinds[k].ends }

// CannotFail says that what follows such a command would do harm if this proxy failed to run it at all.
func (k ConnKind) CannotFail() bool { return connKinds[k].cannotFail }
