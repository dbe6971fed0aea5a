package backend

import (
	"errors"
	"strings"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// PasswordRefused says that Redis refuses a user's password.
func PasswordRefused(err error) bool {
	var reply *upstream.ReplyError
	return errors.As(err, &reply) && strings.HasPrefix(reply.Line, "WRONGPASS")
}

// TooMany says that the budget allows no further connection upstream.
func TooMany(err error) bool {
	var full *upstream.FullError
	return errors.As(err, &full)
}

// Lost says that err is about the connection to Redis, and neither an answer that Redis gave nor a bound of this proxy's.
func Lost(err error) bool {
	if TooMany(err) {
		return false
	}
	var lost *upstream.LostError
	var unsent *upstream.NotSentError
	return errors.As(err, &lost) || errors.As(err, &unsent)
}

// WhyLost is why a client was closed for err, for the log.
func WhyLost(err error) string { return "its connection upstream was lost: " + err.Error() }

// LogIn says that the client must log in first.
func LogIn(err error) bool {
	var reply *upstream.ReplyError
	return errors.As(err, &reply) && strings.HasPrefix(reply.Line, "NOAUTH")
}

// unanswered returns err for a question that changes nothing: if its reply was lost it is as if nothing had been asked.
func unanswered(err error) error {
	var lost *upstream.LostError
	if errors.As(err, &lost) {
		return &upstream.NotSentError{Cause: lost.Cause}
	}
	return err
}

// NoRetry says that to try again would not help.
func NoRetry(err error) bool { return PasswordRefused(err) || LogIn(err) || TooMany(err) }

// refusalIn returns a reply that is an error as a *upstream.ReplyError, else nil.
func refusalIn(reply []byte) error {
	if line, bad := resp.ErrorLine(reply); bad {
		return &upstream.ReplyError{Line: line}
	}
	return nil
}

// The errors for a command that has no reply.
const (
	TimeoutLine = "ERR upstream timeout, the outcome of this command is unknown"
	LostLine    = "ERR upstream connection lost, the outcome of this command is unknown"
)

// ErrorLine is the error as the client is to read it, without the leading '-'.
func ErrorLine(err error) string {
	var reply *upstream.ReplyError
	var lost *upstream.LostError
	switch {
	case errors.As(err, &reply):
		return reply.Line
	case errors.As(err, &lost) && errors.Is(err, upstream.ErrTimeout):
		return TimeoutLine
	case errors.As(err, &lost):
		return LostLine
	}
	return "ERR " + err.Error()
}
