package client

import (
	"errors"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// PasswordRefused says that Redis refuses a user's password.
func PasswordRefused(err error) bool {
	return upstream.RefusedWith(err, "WRONGPASS")
}

// LogIn says that the client must log in first.
func LogIn(err error) bool { return upstream.RefusedWith(err, "NOAUTH") }

// Denied says that Redis does not let a user in, or do something.
func Denied(err error) bool { return upstream.RefusedWith(err, "WRONGPASS", "NOAUTH", "NOPERM") }

// TooMany says that the budget allows no further connection upstream.
func TooMany(err error) bool { return upstream.IsFull(err) }

// Lost says that err is about the connection to Redis, and neither an answer that Redis gave nor a bound of this
// proxy's.
func Lost(err error) bool {
	return !TooMany(err) && (upstream.IsLost(err) || upstream.IsNotSent(err))
}

// WhyLost is why a client was closed for err, for the log.
func WhyLost(err error) string { return "its connection upstream was lost: " + err.Error() }

// NoFurther says that the client can have no further connection, while those that it has go on: there are too many, or
// its password is not valid any more, or one was set where there was none. To try again would not help.
func NoFurther(err error) bool { return PasswordRefused(err) || LogIn(err) || TooMany(err) }

// The errors for a command that has no reply.
const (
	TimeoutLine = "ERR upstream timeout, the outcome of this command is unknown"
	LostLine    = "ERR upstream connection lost, the outcome of this command is unknown"
)

// ErrorLine is the error as the client is to read it, without the leading '-'.
func ErrorLine(err error) string {
	switch refusal, lost := upstream.Refused(err), upstream.IsLost(err); {
	case refusal != nil:
		return refusal.Line
	case lost && errors.Is(err, upstream.ErrTimeout):
		return TimeoutLine
	case lost:
		return LostLine
	}
	return "ERR " + err.Error()
}

// Closes says whether the client is closed, without a reply, for a command that failed with err. Any goroutine may call
// it.
//
// Redis ends its clients' connections when it goes away. Libraries know what to do then: they connect again, and send
// again what may be sent again. An error they only pass to the application. So a client is closed where Redis would
// have closed it: when one of its commands has no reply because the connection upstream broke, or could not be made.
// Its commands before that have their replies. A client that holds locks, or does not know yet that it has lost one, is
// not closed, because its locks would end with its connection: it gets an error in place of each reply, and for what
// else was lost see internal/own. The lock verbs always answer with errors of their own. See
// docs/adr/0018-a-lost-connection-looks-like-one.md.
func (c *Client) Closes(err error) bool {
	return Lost(err) && !errors.Is(err, upstream.ErrTimeout) && c.Lockless()
}

// Fail answers a command that failed with err, or closes the client.
func (c *Client) Fail(err error) { c.Out.Bytes = c.Failed(c.Out.Bytes, err) }

// Failed is Fail with the reply appended to out.
func (c *Client) Failed(out []byte, err error) []byte {
	if c.Closes(err) {
		c.End.HangUp(downstream.Left, WhyLost(err))
		c.Replies.Finish = true
		return out
	}
	return resp.AppendError(out, ErrorLine(err))
}
