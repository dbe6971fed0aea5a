package lockstore

import (
	"strings"
)

// Redisson keeps each read hold at a key `<prefix>:<field>:rwlock_timeout:<i>`: the prefix is the lock's name with a
// hash tag, the field is the owner as it stands in the lock's hash. Prefix and owner may both contain colons, so owner
// `b:job` of lock `a` and owner `job` of lock `{a}:b` would have the same keys: whoever gives back the one would end
// the other. Redisson's owners, and those of connections, end in `<uuid>:<number>`, by which a key can be taken apart
// from its end. Owners that a client names have therefore no colon in the hash of a read/write lock.

// rwField is the field of an owner in the hash of a read/write lock, without the suffix of a write hold. With the name
// of the lock it makes keys that no other lock and owner have.
func rwField(name, owner string) string {
	_, _, implicit := ConnectionIn(owner)
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

// wholeTag says whether a name is one hash tag, as in `{a}`: Redisson keeps the read holds of lock `a` under the same
// prefix.
func wholeTag(name string) bool {
	tag, opens := strings.CutPrefix(name, "{")
	tag, closes := strings.CutSuffix(tag, "}")
	return opens && closes && !strings.Contains(tag, "{")
}

// cutLast is what is before the last colon of a name, and what is after it: the whole name, if there is none.
func cutLast(name string) (before, after string) {
	at := strings.LastIndexByte(name, ':')
	return name[:max(at, 0)], name[at+1:]
}

// endsLikeOwner says whether the prefix of a lock's read holds ends like an implicit owner, or like one without its
// number: the name of an owner of that lock could be taken for the rest of it.
func endsLikeOwner(name string) bool {
	if !strings.Contains(name, "{") {
		return false
	}
	before, last := cutLast(name)
	if IsUUID(last) {
		return true
	}
	_, id := cutLast(before)
	return IsUUID(id) && isNumber(last)
}

// readHoldName says whether a name is that of a key of a read hold.
func readHoldName(name string) bool {
	before, number := cutLast(name)
	before, is := strings.CutSuffix(before, ":rwlock_timeout")
	return is && isNumber(number) && strings.Contains(before, "{")
}
