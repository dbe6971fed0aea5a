package lockstore

import (
	"errors"
	"strings"

	"github.com/lockproxy/lockproxy/upstream"
)

// Error is an answer that a client sees as a Redis error: Code is its first word.
type Error struct{ Code, Text string }

func (e *Error) Error() string { return e.Code + " " + e.Text }

var (
	ErrLate     = errors.New("the request came to Redis too late")
	ErrMoving   = errors.New("the slot of this lock is on its way to another node")
	ErrUnserved = errors.New("no node of the cluster serves the slot of this lock")
	ErrUntold   = errors.New("it is not known yet what Redis can do")
	ErrOver     = errors.New("the time to wait is over") // of Subscription.Ready

	// ErrBehind is for a verb that could not begin for long.
	ErrBehind error = &upstream.NotSentError{Cause: errors.New("the outcome of an earlier command of this owner on this lock is not known yet")}
)

// YoungError is a NOQUORUM that ends by itself: enough nodes are there, but some are too young to count.
type YoungError struct{ Said *Error }

func (e *YoungError) Error() string { return e.Said.Error() }

// Unwrap is the answer that the client sees.
func (e *YoungError) Unwrap() error { return e.Said }

// Unknown says that the reply to a request was lost: it may have been done, or may still be done.
func Unknown(err error) bool {
	if err == nil { // spares the allocation that errors.As needs
		return false
	}
	var lost *upstream.LostError
	return errors.As(err, &lost)
}

// NotSent says that a request was not done, and will not be.
func NotSent(err error) bool {
	if err == nil {
		return false
	}
	var notSent *upstream.NotSentError
	return errors.As(err, &notSent)
}

// Forbidden says that Redis refused something for want of a right.
func Forbidden(err error) bool { return upstream.RefusedWith(err, "NOPERM") }

// WrongType says that Redis refused something because of what the key holds.
func WrongType(err error) bool { return upstream.RefusedWith(err, "WRONGTYPE") }

// RefusedByRedis says that Redis answered a request with an error.
func RefusedByRedis(err error) bool { return upstream.Refused(err) != nil }

// Passing says whether a waiter waits until err has passed: Redis is away, starting, between masters, or busy with
// somebody's script, or has too few replicas (min-replicas-to-write), as a new master has until they have found it.
func Passing(err error) bool {
	var e *Error
	switch {
	case NotSent(err), Unknown(err):
		return true
	case errors.As(err, &e):
		return e.Code == "NOQUORUM"
	}
	return upstream.RefusedWith(err, "LOADING", "MASTERDOWN", "READONLY", "NOREPLICAS", "BUSY")
}

// Unreached says whether err tells that a node is in trouble, rather than a slot or a script.
func Unreached(err error) bool {
	for _, other := range []error{ErrLate, ErrMoving, ErrUnserved} {
		if errors.Is(err, other) {
			return false
		}
	}
	return Passing(err)
}

// EndsByItself says whether a LOCK that may wait does so although its first try failed with err: the lock is moving to
// another node, or nodes of a quorum will soon count.
func EndsByItself(err error) bool {
	var young *YoungError
	return errors.Is(err, ErrMoving) || errors.As(err, &young)
}

// Printable is the name of a lock as errors of the engine and the stores show it: on one line, and not too long,
// whatever bytes the name has. Errors in Redis' words show arguments as Redis does, and people see names in yet another
// form: see commands/reply.go.
func Printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, name)
	if len(name) > 128 {
		return name[:128] + "..."
	}
	return name
}
