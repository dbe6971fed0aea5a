package commandtable

// PinKind is what a command does to the state Redis keeps for its connection.
type PinKind uint8

const (
	PinNone  PinKind = iota
	PinAlone         // none, but it wants a connection of its own
	PinBlock         // it may wait
	PinWait          // WAIT, WAITAOF: about what this connection wrote last
	PinMulti
	PinExec
	PinDiscard
	PinWatch
	PinUnwatch
	PinSubscribe // and its kin, UNSUBSCRIBE too
	PinTracking
	PinMonitor
)

// Starts says that a client without a connection of its own needs one for such a command. EXEC without MULTI is an error
// on every connection, UNWATCH without WATCH changes none.
func (k PinKind) Starts() bool {
	return k != PinNone && k != PinExec && k != PinDiscard && k != PinUnwatch
}

// CannotFail says that what follows such a command would do harm if this proxy failed to run it at all.
func (k PinKind) CannotFail() bool { return k == PinMulti || k == PinWatch }

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
