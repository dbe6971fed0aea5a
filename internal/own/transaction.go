package own

import (
	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// A transaction before a cluster is queued at one node, and nothing of it runs before EXEC. Only its first key tells
// which node that should be: until then it is at any, and when that key comes it is queued again at the key's node,
// while it is short. Slots move: a command that the node redirects is answered QUEUED here. EXEC waits for all earlier
// replies, and then the whole transaction is queued again where its slot is; of one that is too long for that EXEC
// says so. That is not done if keys are watched, because the node that watched them may have missed a change: EXEC is
// then answered null, as if one had changed, and the client begins anew. What one node has refused to queue makes EXEC
// abort at every other, as it would there.

// transactionKept is how many bytes of queued commands are kept to be queued again, of which each takes queuedBytes
// besides its own. They count for --max-query-memory.
const (
	transactionKept = 8 << 20
	queuedBytes     = 256
)

// tooLong is EXEC's reply when the node that has the transaction cannot run it, and no other can be given it.
const tooLong = "EXECABORT Transaction discarded because its slot is at another node, " +
	"where no more than 8 MB are queued again: send a command with a key first"

// transaction is what a client of a cluster has queued since MULTI. It is told what comes, and says what becomes of
// the transaction; what it says is done in clustered_transaction.go.
type transaction struct {
	cmds  []queuedCommand // none of them when there is too much
	size  int             // bytes, also of commands that are not kept
	slot  int             // of its keys, or backend.NoSlot
	cross bool            // its keys are in several slots

	rights backend.RightsChange // that its commands may cause
	kept   downstream.Account   // of size
}

type queuedCommand struct {
	raw    []byte
	cmd    *commandtable.Command
	effect dedicated.Effect
}

// tooLong says that it cannot be queued again.
func (tx *transaction) tooLong() bool { return tx.size > transactionKept }

// held is how many bytes are kept.
func (tx *transaction) held() int {
	if tx.tooLong() {
		return 0
	}
	return tx.size
}

// place notes the slot of a command that is about to be queued. moves: the transaction is to be queued again at the
// slot's node first; elsewhere says that it is at another one.
func (tx *transaction) place(slot int, elsewhere bool) (moves bool) {
	first := tx.slot == backend.NoSlot
	tx.cross = tx.cross || differ(slot, tx.slot)
	if slot != backend.NoSlot {
		tx.slot = slot
	}
	return first && elsewhere && !tx.tooLong()
}

// differ says that both are slots, and not the same.
func differ(slot, other int) bool {
	return slot != other && slot != backend.NoSlot && other != backend.NoSlot
}

// keep notes a command that is queued, to be queued again unless there is too much for that.
func (tx *transaction) keep(q queuedCommand, args [][]byte) {
	tx.rights.Note(q.cmd, args)
	if tx.size += len(q.raw) + queuedBytes; tx.tooLong() {
		tx.cmds = nil
		return
	}
	tx.cmds = append(tx.cmds, q)
}

// ending is what becomes of a transaction at EXEC.
type ending uint8

const (
	endsByExec    ending = iota // EXEC is sent to the node that has it
	endsElsewhere               // it is queued again where its slot is, and EXEC is sent there
	endsCross                   // EXEC is answered as by a Redis that has all slots
	endsNull                    // EXEC is answered as if a watched key had changed
	endsTooLong                 // EXEC is answered that it is too long to be queued again
	endsRefused                 // EXEC is answered with the node's refusal
)

// answer is what EXEC is answered when it has not been sent, or has been refused so.
func (e ending) answer(refusal []byte, proto int) []byte {
	switch e {
	case endsCross:
		return resp.AppendError(nil, cluster.CrossSlot)
	case endsNull:
		return resp.AppendNullArray(nil, proto)
	case endsTooLong:
		return resp.AppendError(nil, tooLong)
	}
	return refusal
}

// ends says what becomes of the transaction when the client has sent EXEC. refused: its node has refused to queue a
// part of it, or EXEC, and r is why that has not run. watched: the node watches keys for the client.
func (tx *transaction) ends(refused bool, r cluster.Refusal, watched bool) ending {
	switch {
	case tx.cross:
		return endsCross
	case !refused:
		return endsByExec
	case r == cluster.Refusal{}:
		return endsRefused
	case watched:
		return endsNull
	case tx.tooLong():
		return endsTooLong
	}
	return endsElsewhere
}
