// Package lockstore describes where locks are kept: what the engine asks of a store, the kinds of a lock, and the names
// of the keys and channels that it has in Redis. Below it are one Redis (node) and the arithmetic of a quorum (tally).
package lockstore

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Kind is what sort of hold an owner has of a key.
type Kind uint8

const (
	// Plain is the lock of LOCK and FAIRLOCK: Redisson's RLock, RFairLock and RFencedLock, whose bytes are the same
	// once held.
	Plain Kind = iota
	// Read is one side of Redisson's RReadWriteLock, which many owners hold together.
	Read
	// Write is the other side, which one owner holds alone; it may also read.
	Write
	// Limit is one place of a lock that as many owners may hold as each request says: of Redisson's
	// RPermitExpirableSemaphore. A limit kept in Redis would need a command to change it, and somebody to give that command
	// before each rollout. Redis keeps no count of an owner's: its proxy knows how often a connection is in the lock. A quorum
	// has no such lock, since two majorities may count different owners.
	Limit
)

// Spec is how one kind differs from the others.
type Spec struct {
	name   string
	Verb   string
	side   string // in the arguments of scripts for read/write locks
	suffix string // of the owner in the hash
	Letter byte   // in the arguments of scripts for locks of every kind
	RW     bool   // one side of a read/write lock; Other is the opposite one
	Other  Kind
	Shared bool // several owners hold it together
}

var kindSpecs = [...]Spec{
	Plain: {name: "plain", Verb: "LOCK", Letter: 'P'},
	Read:  {name: "read", Verb: "RLOCK", Letter: 'R', side: "read", RW: true, Other: Write, Shared: true},
	Write: {name: "write", Verb: "WLOCK", Letter: 'W', side: "write", suffix: writeSuffix, RW: true, Other: Read},
	Limit: {name: "limit", Verb: "LOCK", Letter: 'L'},
}

// Kinds are all there are.
var Kinds = [...]Kind{Plain, Read, Write, Limit}

// HoldKinds are those of ID.Hold, and of lines: both sides of a read/write lock are one.
var HoldKinds = [...]Kind{Plain, Write, Limit}

// writeSuffix follows the owner in the field of a write hold.
const writeSuffix = ":write"

// Spec is how the kind differs from the others.
func (k Kind) Spec() *Spec { return &kindSpecs[k] }

// String is the kind's name, as LOCKINFO and the push of a loss say it.
func (k Kind) String() string { return k.Spec().name }

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(name []byte) error {
	at := slices.IndexFunc(Kinds[:], func(k Kind) bool { return k.String() == string(name) })
	if at < 0 {
		return errors.New("no kind of lock: " + string(name))
	}
	*k = Kinds[at]
	return nil
}

// ID names one owner's hold of one kind.
type ID struct {
	DB         int
	Key, Owner string
	Kind       Kind
}

// As is the same owner's hold of another kind.
func (id ID) As(k Kind) ID {
	id.Kind = k
	return id
}

// Field is where the lock's hash counts this hold, or the member of the zset.
func (id ID) Field() string {
	switch n := id.Kind.Spec(); {
	case n.RW:
		return rwField(id.Key, id.Owner) + n.suffix
	case id.Kind == Limit:
		return permit(id.Owner)
	}
	return id.Owner
}

// Hold names what a connection has of a lock, on both sides: the same for either.
func (id ID) Hold() ID {
	if id.Kind == Read {
		id.Kind = Write
	}
	return id
}

// Reader is where the hash of a read/write lock counts the owner's read holds.
func (id ID) Reader() string { return rwField(id.Key, id.Owner) }

// Side is the kind as scripts for read/write locks take it.
func (id ID) Side() string { return id.Kind.Spec().side }

// ReadHold is the key of one read hold of the owner; they are counted from 1.
func (id ID) ReadHold(number int64) string {
	return ReadPrefix(id.Key) + ":" + id.Reader() + ":rwlock_timeout:" + strconv.FormatInt(number, 10)
}

// Keys are the KEYS of the scripts that take this hold and give it back: the lock, what waits, and the fencing token, if
// there may be one.
func (id ID) Keys() []string {
	queue, token := OwnKeys(id.Key)
	switch id.Kind {
	case Plain:
	case Limit:
		return id.WaitKeys()
	default:
		queue = id.Line().Channel()
	}
	return append(make([]string, 0, 4), id.Key, queue, token)
}

// WaitKeys are the KEYS of the scripts that wake those that wait for the lock: it, and what waits.
func (id ID) WaitKeys() []string {
	if id.Kind == Plain {
		return QueueKeys(id.Key)
	}
	return append(make([]string, 0, 3), id.Key, id.Line().Channel())
}

// QueueKeys are the KEYS of the scripts on the fair queue of a plain lock.
func QueueKeys(name string) []string { return append(make([]string, 0, 3), name, QueueKey(name)) }

// LineKey names what is waited for together: a lock of one of HoldKinds, or a plain one in the fair queue.
type LineKey struct {
	DB   int
	Key  string
	Kind Kind
	Fair bool
}

func (id ID) Line() LineKey { return LineKey{DB: id.DB, Key: id.Key, Kind: id.Hold().Kind} }

// Fairly is the line of those who wait for the same lock in the fair queue.
func (l LineKey) Fairly() LineKey {
	l.Fair = true
	return l
}

// Channel is where Redisson publishes that the lock may be free.
func (l LineKey) Channel() string {
	switch l.Kind {
	case Write:
		return Prefixed("redisson_rwlock", l.Key)
	case Limit:
		return Prefixed("redisson_sc", l.Key)
	}
	return ChannelOf(l.Key)
}

// ReadPrefix is what the keys of readers' holds begin with: <prefix>:<owner>:rwlock_timeout:<i>, by Redisson's
// suffixName.
func ReadPrefix(name string) string {
	if strings.Contains(name, "{") {
		return name
	}
	return "{" + name + "}"
}
