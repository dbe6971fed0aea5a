package own

import (
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
)

// A transaction before a cluster is queued at one node, and nothing of it runs before EXEC. Only its first key tells
// which node that should be: until then it is at any, and what has come is queued again at the key's node, while that is
// short. If the slot moves later, its node refuses what comes, and the transaction is aborted, as any client's of a
// cluster is. So it is if the keys are in several slots, even where one node has them all.

// headKept is how many bytes of the commands before the first key are kept, of which each takes queuedBytes besides its
// own. They count for --max-query-memory.
const (
	headKept    = 1 << 20
	queuedBytes = 256
)

// transaction is what a client of a cluster has queued since MULTI.
type transaction struct {
	slot int             // of its keys, or backend.NoSlot
	head []queuedCommand // those before the first key; none of them when there is too much
	size int             // bytes, also of commands that are not kept

	rights backend.RightsChange // that the head may cause
	kept   downstream.Account   // of size
}

type queuedCommand struct {
	raw    []byte
	cmd    *commandtable.Command
	effect dedicated.Effect
}

// differ says that both are slots, and not the same.
func differ(slot, other int) bool {
	return slot != other && slot != backend.NoSlot && other != backend.NoSlot
}

// keep notes a command that is queued before the first key.
func (tx *transaction) keep(q queuedCommand, args [][]byte) {
	tx.rights.Note(q.cmd, args)
	if tx.size += len(q.raw) + queuedBytes; tx.tooLong() {
		tx.forget()
		return
	}
	tx.head = append(tx.head, q)
	tx.kept.Set(tx.size)
}

// tooLong says that the head is not kept.
func (tx *transaction) tooLong() bool { return tx.size > headKept }

// forget forgets the head.
func (tx *transaction) forget() {
	tx.head = nil
	tx.kept.Set(0)
}
