package lock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/upstream"
)

// Error is an answer of the lock engine that a client sees as a Redis error: Code is its first word.
type Error struct{ Code, Text string }

func (e *Error) Error() string { return e.Code + " " + e.Text }

// ErrNotAcquired says that somebody else held the lock until the time given to wait was over: the verbs' nil reply.
var ErrNotAcquired = errors.New("lock: not acquired in time")

func notHeld(key string, named bool) error {
	text := fmt.Sprintf("this owner does not hold '%s'", printable(key))
	if named {
		text += "; in a pool LOCK and UNLOCK may travel on different connections: name the owner in both with OWNER <id>"
	}
	return &Error{"NOTHELD", text}
}

func otherKind(key string) error {
	return &Error{"LOCKKIND", fmt.Sprintf("'%s' holds a lock of another kind", printable(key))}
}

// Printable is a name as an error shows it: one line, and not too long, whatever bytes the name has.
func Printable(name string) string { return printable(name) }

// printable keeps an error line one line, whatever bytes a lock's name has.
func printable(name string) string {
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

func isUnknown(err error) bool {
	var lost *upstream.LostError
	return errors.As(err, &lost)
}

func isNotSent(err error) bool {
	var notSent *upstream.NotSentError
	return errors.As(err, &notSent)
}

// passing says whether err is the kind of trouble that a waiter sits out: Redis is away, starting, or between masters, or has too few
// replicas (min-replicas-to-write), as a new master until they have found it.
func passing(err error) bool {
	var notSent *upstream.NotSentError
	var reply *upstream.ReplyError
	var e *Error
	if errors.As(err, &e) && e.Code == "NOQUORUM" {
		return true
	}
	if errors.As(err, &notSent) || isUnknown(err) {
		return true
	}
	if !errors.As(err, &reply) {
		return false
	}
	code, _, _ := strings.Cut(reply.Line, " ")
	return code == "LOADING" || code == "MASTERDOWN" || code == "READONLY" || code == "NOREPLICAS"
}

func isLate(err error) bool { return errors.Is(err, errLate) }

// unreached says whether err tells that a node is in trouble, rather than a slot or a script.
func unreached(err error) bool {
	return err != nil && passing(err) && !isLate(err) && !errors.Is(err, errMoving) && !errors.Is(err, errUnserved)
}
