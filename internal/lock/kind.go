package lock

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

// kindSpec is what one kind does otherwise than the others.
type kindSpec struct {
	name   string
	verb   string
	suffix string // of the owner in the hash
	letter byte   // in the arguments of scripts for locks of every kind
	rw     bool   // one side of a read/write lock; other is the opposite one
	other  Kind
	shared bool // several owners hold it together

	acquire, release, renew, extend, look *scripts.Script
}

var kindSpecs = [...]kindSpec{
	Plain: {
		name: "plain", verb: "LOCK", letter: 'P',
		acquire: scripts.Acquire, release: scripts.Release, renew: scripts.Renew, extend: scripts.Extend, look: scripts.Look,
	},
	Read: {
		name: "read", verb: "RLOCK", letter: 'R', rw: true, other: Write, shared: true,
		acquire: scripts.ReadAcquire, release: scripts.ReadRelease, renew: scripts.ReadRenew, extend: scripts.ReadExtend, look: scripts.ReadLook,
	},
	Write: {
		name: "write", verb: "WLOCK", letter: 'W', suffix: writeSuffix, rw: true, other: Read,
		acquire: scripts.WriteAcquire, release: scripts.WriteRelease, renew: scripts.Renew, extend: scripts.WriteExtend, look: scripts.Look,
	},
}

// writeSuffix follows the owner in the field of a write hold.
const writeSuffix = ":write"

func (k Kind) spec() *kindSpec { return &kindSpecs[k] }

// String is the kind's name, as LOCKINFO and the push of a loss say it.
func (k Kind) String() string { return k.spec().name }

// holdID names one owner's hold of one kind.
type holdID struct {
	db         int
	key, owner string
	kind       Kind
}

// as is the same owner's hold of another kind.
func (id holdID) as(k Kind) holdID {
	id.kind = k
	return id
}

// field is where the lock's hash counts this hold.
func (id holdID) field() string {
	if n := id.kind.spec(); n.rw {
		return rwField(id.key, id.owner) + n.suffix
	}
	return id.owner
}

// watchKey holds the registration of a named owner's hold.
func (id holdID) watchKey() string { return watchKey(id.key, id.field()) }

// keys are the first KEYS of every script on this hold: the hash, and for a reader what the keys of its holds begin with.
func (id holdID) keys() []string {
	if id.kind == Read {
		return []string{id.key, readPrefix(id.key) + ":" + id.field() + ":rwlock_timeout"}
	}
	return []string{id.key}
}

// plainKeys are the first KEYS of the scripts that take, free, or wait for a plain lock.
func plainKeys(name string) []string { return append(make([]string, 0, 5), name, queueKey(name)) }

// acquireKeys are the first KEYS of the script that takes this hold, releaseKeys of that which gives it back.
func (id holdID) acquireKeys() []string {
	if id.kind == Plain {
		return plainKeys(id.key)
	}
	return id.keys()
}

func (id holdID) releaseKeys() []string {
	if id.kind == Plain {
		return plainKeys(id.key)
	}
	return append(id.keys(), id.line().channel())
}

// rest are the last ARGV of the scripts of a read/write lock: the owner's field on the other side, and what the keys of all
// readers' holds begin with.
func (id holdID) rest() []string {
	if n := id.kind.spec(); n.rw {
		return []string{id.as(n.other).field(), readPrefix(id.key)}
	}
	return nil
}

// lineKey names what is waited for together: a plain lock, the same in the fair queue, or both sides of a read/write lock.
type lineKey struct {
	db   int
	key  string
	rw   bool
	fair bool
}

func (id holdID) line() lineKey { return lineKey{db: id.db, key: id.key, rw: id.kind.spec().rw} }

// fairly is the line of those who wait for the same lock in the fair queue.
func (l lineKey) fairly() lineKey {
	l.fair = true
	return l
}

// channel is where Redisson publishes that it may be free.
func (l lineKey) channel() string {
	if l.rw {
		return prefixed("redisson_rwlock", l.key)
	}
	return channelOf(l.key)
}

// readPrefix is what the keys of readers' holds begin with: <prefix>:<owner>:rwlock_timeout:<i>, by Redisson's suffixName.
func readPrefix(name string) string {
	if strings.Contains(name, "{") {
		return name
	}
	return "{" + name + "}"
}
