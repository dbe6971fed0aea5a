package lock

import (
	"strconv"
	"strings"
)

// prefixed builds a name beside a lock as Redisson's prefixName does: the lock's own hash tag, or the whole name as the tag,
// so that all keys and channels of one lock live on one slot.
func prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// channelOf is the channel Redisson publishes an unlock on (two underscores before "channel").
func channelOf(name string) string { return prefixed("redisson_lock__channel", name) }

// tokenKey is where RFencedLock keeps the fencing token.
func tokenKey(name string) string { return prefixed("redisson_lock_token", name) }

// queueKey is where RFairLock keeps its queue. Beside it, scripts/queue.lua finds redisson_lock_timeout and lockproxy_fair.
func queueKey(name string) string { return prefixed("redisson_lock_queue", name) }

// watchKey holds the registration of a named owner's hold: which LOCK made it, or has it renewed.
func watchKey(name, owner string) string { return besideHold("lockproxy_watch", name, owner) }

// besideHold builds the name of a key that belongs to one owner's hold.
// Where braces in the name leave open where it ends and the owner begins, the owner's length tells. A name with closing braces
// only gets a hash tag of its own, and a prefix of its own, since `a}` and `{a}}` would share a key otherwise.
func besideHold(prefix, name, owner string) string {
	switch {
	case strings.Contains(name, "{"):
		prefix += strconv.Itoa(len(owner))
	case strings.Contains(name, "}"):
		prefix += "_" + strconv.Itoa(len(owner))
	}
	return prefixed(prefix, name) + ":" + owner
}

// MaxName is the length in bytes a lock's name may have: names are remembered after their lock has gone, and travel with
// everybody else's on one connection.
const MaxName = 4096

// MaxOwner is the length in bytes an explicit owner may have.
const MaxOwner = 256

// ValidOwner says whether id may be an explicit owner: 1 to MaxOwner bytes, none of the hash fields that mean something
// else to Redisson (`mode`, `…:write`), and not of the form `<uuid>:<number>` that connections and Java threads have.
func ValidOwner(id string) bool {
	return id != "" && len(id) <= MaxOwner && id != "mode" && !strings.HasSuffix(id, writeSuffix) && !implicitOwner(id)
}

// uuidLength is the length of a UUID as text.
const uuidLength = 36

// implicitOwner says whether owner is `<uuid>:<number>`: a connection of some proxy, or a Java thread.
func implicitOwner(owner string) bool {
	return len(owner) > uuidLength+1 && owner[uuidLength] == ':' && isUUID(owner[:uuidLength]) && isNumber(owner[uuidLength+1:])
}

// isUUID says whether s is a UUID as Java and this proxy write it, in lower case.
func isUUID(s string) bool {
	if len(s) != uuidLength {
		return false
	}
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'f'
		if dash && s[i] != '-' || !dash && !hex {
			return false
		}
	}
	return true
}

// isNumber says whether s is a decimal number; Java allows negative thread ids where the caller makes them up.
func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
