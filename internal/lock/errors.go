package lock

import (
	"errors"
	"fmt"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// Error is an answer that a client sees as a Redis error: see lockstore.
type Error = lockstore.Error

// ErrNotAcquired says that somebody else held the lock until the time given to wait was over: the verbs' nil reply.
var ErrNotAcquired = errors.New("lock: not acquired in time")

// errLeaseless is the answer to a named owner that says no lease. The commands refuse it before.
var errLeaseless = &Error{Code: "ERR", Text: "OWNER needs EX or PX: a named owner has the lock for that long, and RENEW begins it anew"}

func notHeld(key string, named bool) error {
	text := fmt.Sprintf("this owner does not hold '%s'", lockstore.Printable(key))
	if named {
		text += "; in a pool LOCK and UNLOCK may travel on different connections: name the owner in both with OWNER <id>"
	}
	return &Error{Code: "NOTHELD", Text: text}
}

func otherKind(key string) error {
	return &Error{Code: "LOCKKIND", Text: fmt.Sprintf("'%s' holds a lock of another kind", lockstore.Printable(key))}
}

// bothSides is the answer to a verb that names no side of a read/write lock of which the owner has both, or may have.
func bothSides(key string) error {
	return &Error{Code: "ERR", Text: fmt.Sprintf("this owner may hold '%s' for reading and for writing: say READ or WRITE", lockstore.Printable(key))}
}

// noQueue is the error of a FAIRLOCK whose place would be in another lock's queue.
func noQueue(key string) error {
	return &Error{Code: "ERR", Text: fmt.Sprintf("'%s' has no fair queue of its own: it would be that of lock '%s'",
		lockstore.Printable(key), lockstore.Printable(key[1:len(key)-1]))}
}

func isCode(err error, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
