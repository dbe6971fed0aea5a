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

// noScan refuses a search for locks among all keys, where a setting has put them elsewhere.
func noScan(by string) error {
	return &Error{Code: "ERR", Text: "LOCKLIST SCAN is not available with " + by + ": locks are not where the data is, " +
		"and clients have no accounts there; LOCKINFO asks there about one lock"}
}

// about is an error about a lock, whose name is the %s of the text.
func about(key, code, text string) error {
	return &Error{Code: code, Text: fmt.Sprintf(text, lockstore.Printable(key))}
}

func notHeld(key string, named bool) error {
	text := "this owner does not hold '%s'"
	if named {
		text += "; in a pool LOCK and UNLOCK may travel on different connections: " +
			"name the owner in both with OWNER <id>"
	}
	return about(key, "NOTHELD", text)
}

func otherKind(key string) error { return about(key, "LOCKKIND", "'%s' holds a lock of another kind") }

// ofAnotherKind says whether a verb about a plain lock has met a lock of another kind: one that several may hold is no hash.
func ofAnotherKind(err error) bool {
	return isCode(err, "LOCKKIND") || lockstore.WrongType(err)
}

// bothSides is the answer to a verb that names no side of a read/write lock of which the owner has both, or may have.
func bothSides(key string) error {
	return about(key, "ERR", "this owner may hold '%s' for reading and for writing: say READ or WRITE")
}

// wouldWaitForItself is the answer to a WLOCK by an owner that reads.
func wouldWaitForItself(key string) error {
	return about(key, "DEADLOCK", "this owner reads '%s': its WLOCK would wait for its own UNLOCK; "+
		"take WLOCK first, then RLOCK")
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
