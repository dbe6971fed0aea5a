package upstream

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// ReplyError is an error Redis itself answered: to AUTH, or to the handshake of
// a connection. Line is Redis' line without the leading '-' and the line end.
type ReplyError struct{ Line string }

func (e *ReplyError) Error() string { return e.Line }

// ofUser says that the error concerns the user, the password or the database of one connection, and no other
// connection.
func (e *ReplyError) ofUser() bool {
	return RefusedWith(e, "WRONGPASS", "NOAUTH", "NOPERM") || strings.HasPrefix(e.Line, "ERR DB index ")
}

// refusesPassword says that err is Redis' refusal to let a user in.
func refusesPassword(err error) bool { return RefusedWith(err, "WRONGPASS", "NOAUTH") }

// code is the first word of an error's line.
func code(line string) string {
	word, _, _ := strings.Cut(line, " ")
	return word
}

// NotSentError says that not one byte of the request was handed to the kernel:
// it may be sent again.
type NotSentError struct{ Cause error }

func (e *NotSentError) Error() string { return "upstream unavailable: " + e.Cause.Error() }

// Unwrap returns what kept the request from being sent.
func (e *NotSentError) Unwrap() error { return e.Cause }

// LostError says that the request was sent, at least in part, and the
// connection ended before all its replies came: Redis may or may not have run
// the commands without a reply.
type LostError struct{ Cause error }

func (e *LostError) Error() string {
	return "upstream connection lost, the command's outcome is unknown: " + e.Cause.Error()
}

// Unwrap returns what ended the connection.
func (e *LostError) Unwrap() error { return e.Cause }

// These causes stand inside a NotSentError or LostError.
var (
	// ErrClosed: the Node was closed, or the pipe released.
	ErrClosed = errors.New("connection closed by the proxy")
	// ErrLeft: the client has gone, nobody waits for the replies.
	ErrLeft = errors.New("the client has gone")
	// ErrTimeout: Redis has not answered in the time that was set for it.
	ErrTimeout = errors.New("no answer from Redis in time")
	// ErrSlow: Redis has not answered yet, and another one is asked.
	ErrSlow = errors.New("no answer from Redis yet")
	// errNoLink: no connection came up in the time a request may wait for one. It is a time-out, like that of a dial.
	errNoLink = fmt.Errorf("no connection to Redis yet: %w", os.ErrDeadlineExceeded)
)

var (
	errClosedByRedis = errors.New("connection closed by Redis")
	// errUnused: Redis has closed a connection on which nothing was under way, as it does after its time-out for idle
	// clients.
	errUnused = fmt.Errorf("%w, nothing was under way", errClosedByRedis)
)

// errTakesNothing ends a connection to which nothing could be written for the longest time that a client waits.
var errTakesNothing = errors.New("no byte was taken by Redis in time")

// Ended says that err comes from a Request's End.
func Ended(err error) bool { return abandoned(err) || errors.Is(err, ErrSlow) }

// abandoned says that nobody waits for the reply any more.
func abandoned(err error) bool { return errors.Is(err, ErrLeft) || errors.Is(err, ErrTimeout) }

// violation is a break of the protocol by the peer; the connection is closed.
func violation(format string, args ...any) error {
	return fmt.Errorf("protocol violation by Redis: "+format, args...)
}

// Refused returns err's *ReplyError, or nil when err is something else.
func Refused(err error) *ReplyError {
	re, _ := errors.AsType[*ReplyError](err)
	return re
}

// RefusedWith says that err is an error that Redis answered, with one of these codes.
func RefusedWith(err error, codes ...string) bool {
	re := Refused(err)
	return re != nil && slices.Contains(codes, code(re.Line))
}

// ErrorIn returns a reply that is an error as a *ReplyError, else nil.
func ErrorIn(reply []byte) error {
	if line, bad := resp.ErrorLine(reply); bad {
		return &ReplyError{Line: line}
	}
	return nil
}

// IsNotSent says that err is a *NotSentError.
func IsNotSent(err error) bool {
	_, is := errors.AsType[*NotSentError](err)
	return is
}

// IsLost says that err is a *LostError.
func IsLost(err error) bool {
	_, is := errors.AsType[*LostError](err)
	return is
}

// IsFull says that err is a *FullError.
func IsFull(err error) bool {
	_, is := errors.AsType[*FullError](err)
	return is
}

// notSent wraps a failed connection attempt for the requests that waited for
// it. Redis' own refusal is passed on as it is.
func notSent(err error) error {
	if re := Refused(err); re != nil {
		return re
	}
	return &NotSentError{Cause: err}
}
