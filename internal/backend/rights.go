package backend

import "github.com/lockproxy/lockproxy/internal/commandtable"

// RightsChange is what commands that have passed here may have changed of users and their rights.
type RightsChange struct {
	Any     bool
	Deleted []string // users
}

// Note adds what a call of c may change.
func (r *RightsChange) Note(c *commandtable.Command, args [][]byte) {
	if !c.Rights {
		return
	}
	r.Any = true
	if c.Name == "acl|deluser" {
		for _, name := range args[min(2, len(args)):] {
			r.Deleted = append(r.Deleted, string(name))
		}
	}
}
