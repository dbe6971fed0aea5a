package lock

import (
	"strings"
)

// guardKey is a key in the slot of a lock that never exists: see call.guarded.
func guardKey(name string) string { return prefixed("lockproxy_guard", name) }

// clusterable says whether all keys and channels of a lock are in one slot by Redisson's naming: a name with a brace is its own
// hash tag there, which has to be one for Redis, too.
func clusterable(name string) bool {
	open := strings.IndexByte(name, '{')
	if open < 0 {
		return name != "" && !strings.Contains(name, "}")
	}
	return strings.IndexByte(name[open+1:], '}') > 0
}

// nameable refuses names that cannot be a lock's: those of keys that belong to other locks, which a client could overwrite without
// a right to them, and on a cluster those whose lock would be spread over several nodes.
func (m *Manager) nameable(names ...string) error {
	for _, name := range names {
		if strings.HasPrefix(name, reservedPrefix) || readHoldName(name) {
			return &Error{"ERR", "'" + printable(name) + "' cannot be a lock: names that begin with '" + reservedPrefix +
				"' or end in ':rwlock_timeout:<number>' are those of keys that belong to other locks"}
		}
		if err := m.store.fits(name); err != nil {
			return err
		}
	}
	return nil
}

// reservedPrefix begins the names of the keys that lockproxy alone keeps beside a lock.
const reservedPrefix = "lockproxy_"

func (f *sharded) fits(name string) error {
	if clusterable(name) {
		return nil
	}
	return &Error{"ERR", "'" + printable(name) + "' cannot be a lock on a cluster: its braces are no hash tag, so its keys and " +
		"channels would be on different nodes; use a name without braces, or with one {tag}"}
}
