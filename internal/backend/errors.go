package backend

import (
	"errors"
	"strings"

	"github.com/lockproxy/lockproxy/upstream"
)

// PasswordRefused says that Redis would not let a user in again.
func PasswordRefused(err error) bool {
	var reply *upstream.ReplyError
	return errors.As(err, &reply) && strings.HasPrefix(reply.Line, "WRONGPASS")
}

// TooMany says that there may be no further connection upstream.
func TooMany(err error) bool {
	var full *upstream.FullError
	return errors.As(err, &full)
}

// LogIn says that the client must log in first.
func LogIn(err error) bool {
	var reply *upstream.ReplyError
	return errors.As(err, &reply) && strings.HasPrefix(reply.Line, "NOAUTH")
}

// Unanswered is err of a question whose lost reply is no unknown outcome, as of what changes nothing: it is as if nothing had been
// asked.
func Unanswered(err error) error {
	var lost *upstream.LostError
	if errors.As(err, &lost) {
		return &upstream.NotSentError{Cause: lost.Cause}
	}
	return err
}

// NoRetry says that to try again would not help.
func NoRetry(err error) bool { return PasswordRefused(err) || LogIn(err) || TooMany(err) }
