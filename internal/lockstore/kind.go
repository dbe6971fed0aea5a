// Package lockstore describes where locks are kept: what the engine asks of a store, the kinds of a lock, and the names of the keys and
// channels that it has in Redis. Below it are one Redis (node) and the arithmetic of a quorum (tally).
package lockstore

import (
	"strings"

	"github.com/lockproxy/lockproxy/scripts"
)

// Kind is what sort of hold an owner has of a key.
type Kind uint8

const (
	// Plain is the lock of LOCK and FAIRLOCK: Redisson's RLock, RFairLock and RFencedLock, whose bytes are the same once held.
	Plain Kind = iota
	// Read is one side of Redisson's RReadWriteLock, which many owners hold together.
	Read
	// Write is the other side, which one owner holds alone; it may also read.
	Write
)

// Spec is how one kind differs from the others.
type Spec struct {
	name   string
	Verb   string
	suffix string // of the owner in the hash
	Letter byte   // in the arguments of scripts for locks of every kind
	RW     bool   // one side of a read/write lock; Other is the opposite one
	Other  Kind
	Shared bool // several owners hold it together

	Acquire, Release, Renew, Extend, Look *scripts.Script
}

var kindSpecs = [...]Spec{
	Plain: {
		name: "plain", Verb: "LOCK", Letter: 'P',
		Acquire: scripts.Acquire, Release: scripts.Release, Renew: scripts.Renew, Extend: scripts.Extend, Look: scripts.Look,
	},
	Read: {
		name: "read", Verb: "RLOCK", Letter: 'R', RW: true, Other: Write, Shared: true,
		Acquire: scripts.ReadAcquire, Release: scripts.ReadRelease, Renew: scripts.ReadRenew, Extend: scripts.ReadExtend, Look: scripts.ReadLook,
	},
	Write: {
		name: "write", Verb: "WLOCK", Letter: 'W', suffix: writeSuffix, RW: true, Other: Read,
		Acquire: scripts.WriteAcquire, Release: scripts.WriteRelease, Renew: scripts.Renew, Extend: scripts.WriteExtend, Look: scripts.Look,
	},
}

// Kinds are all there are.
var Kinds = [...]Kind{Plain, Read, Write}

// writeSuffix follows the owner in the field of a write hold.
const writeSuffix = ":write"

// Spec is how the kind differs from the others.
func (k Kind) Spec() *Spec { return &kindSpecs[k] }

// String is the kind's name, as LOCKINFO and the push of a loss say it.
func (k Kind) String() string { return k.Spec().name }

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

// Field is where the lock's hash counts this hold.
func (id ID) Field() string {
	if n := id.Kind.Spec(); n.RW {
		return rwField(id.Key, id.Owner) + n.suffix
	}
	return id.Owner
}

// WatchKey holds the registration of a named owner's hold.
func (id ID) WatchKey() string { return WatchKey(id.Key, id.Field()) }

// VotesKey is where a node notes which attempts count on a hold.
func (id ID) VotesKey() string { return besideHold("lockproxy_votes", id.Key, id.Field()) }

// Keys are the first KEYS of every script on this hold: the hash, and for a reader what the keys of its holds begin with.
func (id ID) Keys() []string {
	if id.Kind == Read {
		return []string{id.Key, ReadPrefix(id.Key) + ":" + id.Field() + ":rwlock_timeout"}
	}
	return []string{id.Key}
}

// PlainKeys are the first KEYS of the scripts that free a plain lock, or wait for it.
func PlainKeys(name string) []string { return append(make([]string, 0, 5), name, QueueKey(name)) }

// AcquireKeys are the first KEYS of the script that takes this hold, ReleaseKeys of that which gives it back.
func (id ID) AcquireKeys() []string {
	if id.Kind == Plain {
		return append(make([]string, 0, 5), id.Key, OwnQueueKey(id.Key))
	}
	return id.Keys()
}

func (id ID) ReleaseKeys() []string {
	if id.Kind == Plain {
		return PlainKeys(id.Key)
	}
	return append(id.Keys(), id.Line().Channel())
}

// Rest are the last ARGV of the scripts of a read/write lock: the owner's field on the other side, and what the keys of all
// readers' holds begin with.
func (id ID) Rest() []string {
	if n := id.Kind.Spec(); n.RW {
		return []string{id.As(n.Other).Field(), ReadPrefix(id.Key)}
	}
	return nil
}

// LineKey names what is waited for together: a plain lock, the same in the fair queue, or both sides of a read/write lock.
type LineKey struct {
	DB   int
	Key  string
	RW   bool
	Fair bool
}

func (id ID) Line() LineKey { return LineKey{DB: id.DB, Key: id.Key, RW: id.Kind.Spec().RW} }

// Fairly is the line of those who wait for the same lock in the fair queue.
func (l LineKey) Fairly() LineKey {
	l.Fair = true
	return l
}

// Channel is where Redisson publishes that the lock may be free.
func (l LineKey) Channel() string {
	if l.RW {
		return Prefixed("redisson_rwlock", l.Key)
	}
	return ChannelOf(l.Key)
}

// ReadPrefix is what the keys of readers' holds begin with: <prefix>:<owner>:rwlock_timeout:<i>, by Redisson's suffixName.
func ReadPrefix(name string) string {
	if strings.Contains(name, "{") {
		return name
	}
	return "{" + name + "}"
}
