package lockstore

import (
	"strings"
)

// Redisson keeps each read hold at a key `<prefix>:<field>:rwlock_timeout:<i>`: the prefix is the lock's name with a hash tag, the
// field is the owner as it stands in the lock's hash. Prefix and owner may both contain colons, so owner `b:job` of lock `a` and
// owner `job` of lock `{a}:b` would have the same keys: whoever gives back the one would end the other. Redisson's owners, and those
// of connections, end in `<uuid>:<number>`, by which a key can be taken apart from its end. Owners that a client names have
// therefore no colon in the hash of a read/write lock.

// rwField is the field of an owner in the hash of a read/write lock, without the suffix of a write hold. With the name of the lock
// it makes keys that no other lock and owner have.
func rwField(name, owner string) string {
	implicit := implicitOwner(owner)
	whole := wholeTag(name)
	if implicit && !whole {
		return owner
	}
	field := owner
	if strings.ContainsAny(owner, ":%") {
		field = fieldEscapes.Replace(owner)
	}
	if whole || endsLikeOwner(name) {
		field = fieldMark + field
	}
	return field
}

// OwnerOf is the owner whose field that is in the hash of a read/write lock, and on which side.
func OwnerOf(field string) (owner string, side Kind) {
	if owner, writes := strings.CutSuffix(field, writeSuffix); writes {
		return rwOwner(owner), Write
	}
	return rwOwner(field), Read
}

// ReaderOf is that field without the suffix of a write hold.
func ReaderOf(field string) string { return strings.TrimSuffix(field, writeSuffix) }

// rwOwner is the owner whose field that is, without the suffix of a write hold.
func rwOwner(field string) string {
	if !strings.Contains(field, "%") {
		return field
	}
	return fieldUnescapes.Replace(strings.TrimPrefix(field, fieldMark))
}

// fieldMark begins the fields of owners on locks whose names alone could be mistaken. No escaped owner begins with it.
const fieldMark = "%%"

var (
	fieldEscapes   = strings.NewReplacer("%", "%25", ":", "%3A")
	fieldUnescapes = strings.NewReplacer("%25", "%", "%3A", ":")
)

// wholeTag says whether a name is one hash tag, as in `{a}`: Redisson keeps the read holds of lock `a` under the same prefix.
func wholeTag(name string) bool {
	return len(name) >= 2 && name[0] == '{' && name[len(name)-1] == '}' && strings.LastIndexByte(name, '{') == 0
}

// endsLikeOwner says whether the prefix of a lock's read holds ends like an implicit owner, or like one without its number: the
// name of an owner of that lock could be taken for the rest of it.
func endsLikeOwner(name string) bool {
	if !strings.Contains(name, "{") {
		return false
	}
	last := strings.LastIndexByte(name, ':')
	if last < 0 {
		return false
	}
	if isUUID(name[last+1:]) {
		return true
	}
	before := strings.LastIndexByte(name[:last], ':')
	return before >= 0 && isUUID(name[before+1:last]) && isNumber(name[last+1:])
}

// readHoldName says whether a name is that of a key of a read hold.
func readHoldName(name string) bool {
	last := strings.LastIndexByte(name, ':')
	return last >= 0 && isNumber(name[last+1:]) && strings.HasSuffix(name[:last], ":rwlock_timeout") && strings.Contains(name[:last], "{")
}
