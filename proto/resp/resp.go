// Package resp is the wire: Redis' protocol as bytes, in both of its versions.
//
// Three things live here, and none of them knows a command or a lock.
// [Reader] stands between a client's socket and redcon and lets only whole,
// bounded, well-formed commands through. [Scanner] finds where reply frames
// end, so that replies can be handed on as they came. The Append functions
// write the frames that lockproxy itself answers with.
//
// What is malformed, and in which words a client is told, follows Redis
// 7.0.15 (networking.c: processInlineBuffer, processMultibulkBuffer).
package resp

import "math"

// Limits bound what one client may send. A field that is 0 or less means the
// value [DefaultLimits] has in it. Limits are set when the configuration is
// read and copied around; they have no state.
type Limits struct {
	// Args is the largest number of arguments of one command, its name included.
	Args int
	// Bulk is the largest length of one argument in bytes.
	Bulk int
	// Inline is the largest length in bytes of a line: an inline command, or
	// the header of a multibulk command or of an argument.
	Inline int
	// Command is the largest size in bytes of a whole command, as multibulk.
	Command int

	// unauthenticated selects Redis' words for clients that must say AUTH first.
	unauthenticated bool
}

// DefaultLimits are Redis' own where it has one (512 MiB an argument, 64 KiB a
// line), and ours where Redis would go on until memory ends.
var DefaultLimits = Limits{Args: 1 << 20, Bulk: 512 << 20, Inline: 64 << 10, Command: 1 << 30}

// UnauthenticatedLimits are what Redis allows a client that has not
// authenticated although it must. Redis does not apply them to inline commands;
// here these are rewritten and then no different from the others.
var UnauthenticatedLimits = Limits{Args: 10, Bulk: 16384, unauthenticated: true}

// filled returns l with its empty fields set from DefaultLimits.
func (l Limits) filled() Limits {
	d := DefaultLimits
	if l.Args <= 0 {
		l.Args = d.Args
	}
	if l.Bulk <= 0 {
		l.Bulk = d.Bulk
	}
	if l.Inline <= 0 {
		l.Inline = d.Inline
	}
	if l.Command <= 0 {
		l.Command = d.Command
	}
	return l
}

// Check judges a command that has been let through under other limits: the error is a [*ProtocolError], or nil.
func (l Limits) Check(args [][]byte) error {
	l = l.filled()
	if err := l.checkArgs(int64(len(args))); err != nil {
		return err
	}
	for _, a := range args {
		if err := l.checkBulk(int64(len(a))); err != nil {
			return err
		}
	}
	return nil
}

// checkArgs judges an announced number of arguments.
func (l *Limits) checkArgs(n int64) error {
	switch {
	case n <= int64(l.Args):
		return nil
	case l.unauthenticated && n <= math.MaxInt32:
		return errUnauthenticatedArgs
	default:
		return errMultibulkLength
	}
}

// checkBulk judges an announced length of an argument.
func (l *Limits) checkBulk(n int64) error {
	switch {
	case n < 0:
		return errBulkLength
	case n <= int64(l.Bulk):
		return nil
	case l.unauthenticated && n <= int64(DefaultLimits.Bulk):
		return errUnauthenticatedBulk
	default:
		return errBulkLength
	}
}

// A ProtocolError says that a client broke the protocol or a limit. Nothing it
// sent afterwards can be understood: tell it ("-ERR " + Error()) and hang up.
type ProtocolError struct {
	// Text is what Redis says after "Protocol error: ".
	Text string
}

// Error returns the message as Redis words it, without the "-ERR " before it.
func (e *ProtocolError) Error() string { return "Protocol error: " + e.Text }

var (
	errInlineTooBig        = &ProtocolError{"too big inline request"}
	errCountTooBig         = &ProtocolError{"too big mbulk count string"}
	errMultibulkLength     = &ProtocolError{"invalid multibulk length"}
	errUnauthenticatedArgs = &ProtocolError{"unauthenticated multibulk length"}
	errBulkCountTooBig     = &ProtocolError{"too big bulk count string"}
	errBulkLength          = &ProtocolError{"invalid bulk length"}
	errUnauthenticatedBulk = &ProtocolError{"unauthenticated bulk length"}
	errUnbalancedQuotes    = &ProtocolError{"unbalanced quotes in request"}
	errCommandTooBig       = &ProtocolError{"too big command"} // ours: Redis has no such limit
)
