package lockstore

import (
	"encoding/hex"
	"strings"
)

// Prefixed builds a name beside a lock as Redisson's prefixName does: the lock's own hash tag, or the whole name as the
// tag, so that all keys and channels of one lock live on one slot.
func Prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// ChannelOf is the channel Redisson publishes an unlock on (two underscores before "channel").
func ChannelOf(name string) string { return Prefixed("redisson_lock__channel", name) }

const (
	queuePrefix   = "redisson_lock_queue"
	timeoutPrefix = "redisson_lock_timeout"
	tokenPrefix   = "redisson_lock_token"
)

// TokenKey is where RFencedLock keeps the fencing token.
func TokenKey(name string) string { return Prefixed(tokenPrefix, name) }

// QueueKey is where RFairLock keeps its queue. Beside it, scripts/queue.lua finds TimeoutKey, and lockproxy_fair.
func QueueKey(name string) string { return Prefixed(queuePrefix, name) }

// TimeoutKey is the zset that says until when the waiters of that queue count as alive.
func TimeoutKey(name string) string { return Prefixed(timeoutPrefix, name) }

// SharesQueue says whether a lock would have the fair queue of another one, or its zset of places: `{a}` that of `a`. It
// has none then, as nobody but the users of `a` may say who waits for that.
func SharesQueue(name string) bool { return wholeTag(name) }

// noQueue stands where the names of fair queues begin. It has the same length, since scripts make the name of the
// channel from the queue's.
const noQueue = "lockproxy_no_queue_"

// OwnKeys are the key of a lock's queue, or, for a lock without a queue, a key that never exists; and TokenKey. Each
// LOCK and UNLOCK needs both, so they are made in one piece.
func OwnKeys(name string) (queue, token string) {
	prefix := queuePrefix
	if SharesQueue(name) {
		prefix = noQueue
	}
	before, after := ":{", "}"
	if strings.Contains(name, "{") {
		before, after = ":", ""
	}
	both := prefix + before + name + after + tokenPrefix + before + name + after
	end := len(prefix) + len(before) + len(name) + len(after)
	return both[:end], both[end:]
}

// MaxName is the length in bytes a lock's name may have: names are remembered after their lock has gone, and travel
// with everybody else's on one connection.
const MaxName = 4096

// maxOwner is the length in bytes an explicit owner may have.
const maxOwner = 256

// ValidOwner says whether id may be an explicit owner: 1 to 256 bytes, none of the hash fields that mean something
// else to Redisson (`mode`, `…:write`), not of the form `<uuid>:<number>` that connections and Java threads have, and not
// SELF, which many clients would say that mean their connections.
func ValidOwner(id string) bool {
	switch {
	case id == "", id == "mode", len(id) > maxOwner, strings.HasSuffix(id, writeSuffix), strings.EqualFold(id, "SELF"):
		return false
	}
	_, _, is := ConnectionIn(id)
	return !is
}

// ConnectionIn takes an owner apart that is `<uuid>:<number>`: a connection of some proxy, or a thread of Java, whose
// uuid is its Redisson's getId().
func ConnectionIn(owner string) (uuid, number string, is bool) {
	uuid, number, _ = strings.Cut(owner, ":")
	return uuid, number, IsUUID(uuid) && isNumber(number)
}

const (
	digits   = "0123456789"
	uuidForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" // x is a hexadecimal digit
)

// IsUUID says whether s is a UUID as Java and this proxy write it, in lower case.
func IsUUID(s string) bool {
	if len(s) != len(uuidForm) {
		return false
	}
	for i := range len(s) {
		may := "-"
		if uuidForm[i] == 'x' {
			may = digits + "abcdef"
		}
		if strings.IndexByte(may, s[i]) < 0 {
			return false
		}
	}
	return true
}

// isNumber says whether s is a decimal number; Java allows negative thread ids where the caller makes them up.
func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && strings.Trim(s, digits) == ""
}

// permit is the member of the zset that has an owner's place: Redisson's are 16 bytes, which Java knows by 32 hexadecimal
// digits, as a permit's id.
func permit(owner string) string {
	if id, err := hex.DecodeString(owner); err == nil && len(id) == 16 && strings.ToLower(owner) == owner {
		return string(id)
	}
	return owner
}

// PermitOf is the owner whose member of the zset that is.
func PermitOf(member string) string {
	if len(member) == 16 && strings.ContainsFunc(member, func(c rune) bool { return c < ' ' || c > '~' }) {
		return hex.EncodeToString([]byte(member))
	}
	return member
}

// PlacesKey is the zset that has the owners of a lock that several may hold: see scripts/limit.lua.
func PlacesKey(name string) string { return ReadPrefix(name) + ":timeout" }

// endsName says whether a name is that of the zset of a lock that several may hold: see scripts/limit.lua.
func endsName(name string) bool {
	return strings.HasSuffix(name, ":timeout") && strings.Contains(name, "{")
}

// GuardKey is a key, in the slot of a lock, that never exists: see node.Call.Guarded.
func GuardKey(name string) string { return Prefixed("lockproxy_guard", name) }

// Clusterable says whether all keys and channels of a lock are in one slot by Redisson's naming: a name with a brace is
// its own hash tag there, which has to be one for Redis, too.
func Clusterable(name string) bool {
	open := strings.IndexByte(name, '{')
	if open < 0 {
		return name != "" && !strings.Contains(name, "}")
	}
	return strings.IndexByte(name[open+1:], '}') > 0
}

// ReservedPrefix begins the names of the keys that lockproxy alone keeps beside a lock.
const ReservedPrefix = "lockproxy_"

// Reserved says whether a name cannot be a lock's, since keys that belong to other locks have such names: a client
// could overwrite those without a right to them.
func Reserved(name string) bool {
	kind, _, _ := strings.Cut(name, ":")
	return strings.HasPrefix(name, ReservedPrefix) || readHoldName(name) || endsName(name) || kind == queuePrefix || kind == timeoutPrefix || kind == tokenPrefix
}
