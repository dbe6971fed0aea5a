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

// nameable refuses names whose lock would be spread over several nodes of a cluster.
func (m *Manager) nameable(names ...string) error {
	if m.fleet == nil {
		return nil
	}
	for _, name := range names {
		if !clusterable(name) {
			return &Error{"ERR", "'" + printable(name) + "' cannot be a lock on a cluster: its braces are no hash tag, so its keys and " +
				"channels would be on different nodes; use a name without braces, or with one {tag}"}
		}
	}
	return nil
}
