package backend

import (
	"bytes"
	"slices"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/upstream"
)

// RightsChange is what commands that have passed here may have changed of users and their rights.
type RightsChange struct {
	Any     bool
	All     bool     // clients that have not authenticated may have lost all rights
	Deleted []string // users
}

// Note adds what a call of c may change.
func (r *RightsChange) Note(c *commandtable.Command, args [][]byte) {
	if c == nil || !c.Rights {
		return
	}
	r.Any = true
	switch c.Name {
	case "acl|deluser":
		for _, name := range args[min(2, len(args)):] {
			r.Deleted = append(r.Deleted, string(name))
		}
	case "acl|setuser":
		r.All = r.All || len(args) > 2 && string(args[2]) == "default"
	case "config|set":
		r.All = r.All || slices.ContainsFunc(args, func(word []byte) bool { return bytes.EqualFold(word, []byte("requirepass")) })
	default:
		r.All = true
	}
}

// Concerns says whether Redis may no longer accept a connection of that identity.
func (r *RightsChange) Concerns(id upstream.Identity) bool {
	if id.Anonymous() {
		return r.All
	}
	return slices.Contains(r.Deleted, id.User)
}
