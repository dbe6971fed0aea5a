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

// Starts says that a client without a connection of its own needs one for such a command. EXEC without MULTI is an error
// on every connection, UNWATCH without WATCH changes none.
func (k ConnKind) Starts() bool {
	return k != ConnNone && k != ConnExec && k != ConnDiscard && k != ConnUnwatch
}

// Ends says that such a command, without an argument, ends a transaction.
func (k ConnKind) Ends() bool { return k == ConnExec || k == ConnDiscard }

// CannotFail says that what follows such a command would do harm if this proxy failed to run it at all.
func (k ConnKind) CannotFail() bool { return k == ConnMulti || k == ConnWatch }

// ScriptKind is what a command has to do with scripts and functions.
type ScriptKind byte

const (
	NoScript     ScriptKind = iota
	RunsBody                // EVAL: the first argument is the script
	RunsSHA                 // EVALSHA
	RunsFunction            // FCALL
	LoadsScript
	FlushesScripts
)

// Runs says that it runs a script or function.
func (k ScriptKind) Runs() bool { return k >= RunsBody && k <= RunsFunction }
