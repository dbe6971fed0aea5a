package backend

import (
	"errors"
	"strings"

	"github.com/lockproxy/lockproxy/upstream"
)

// PasswordRefused says that Redis refuses a user's password.
func PasswordRefused(err error) bool {
	return refusedWith(err, "WRONGPASS")
}

// LogIn says that the client must log in first.
func LogIn(err error) bool { return refusedWith(err, "NOAUTH") }

func refusedWith(err error, code string) bool {
	refusal := upstream.Refused(err)
	return refusal != nil && strings.HasPrefix(refusal.Line, code)
}

// TooMany says that the budget allows no further connection upstream.
func TooMany(err error) bool { return upstream.IsFull(err) }

// Lost says that err is about the connection to Redis, and neither an answer that Redis gave nor a bound of this proxy's.
func Lost(err error) bool {
	return !TooMany(err) && (upstream.IsLost(err) || upstream.IsNotSent(err))
}

// WhyLost is why a client was closed for err, for the log.
func WhyLost(err error) string { return "its connection upstream was lost: " + err.Error() }

// unanswered returns err for a question that changes nothing: if its reply was lost it is as if nothing had been asked.
func unanswered(err error) error {
	if lost, is := errors.AsType[*upstream.LostError](err); is {
		return &upstream.NotSentError{Cause: lost.Cause}
	}
	return err
}

// NoFurther says that the client can have no further connection, while those that it has go on: there are too many, or its password is not
// valid any more, or one was set where there was none. To try again would not help.
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
