package own

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// What of a transaction is kept until its first key comes.
func TestHeadOfATransaction(t *testing.T) {
	t.Parallel()
	tx := &transaction{slot: backend.NoSlot}
	q := queuedCommand{raw: make([]byte, 100), cmd: &commandtable.Command{Name: "ping"}}
	for range 3 {
		tx.keep(q, nil)
	}
	if len(tx.head) != 3 || tx.tooLong() || tx.size != 3*(100+queuedBytes) {
		t.Errorf("%d commands, %d bytes", len(tx.head), tx.size)
	}
	q.raw = make([]byte, headKept)
	for range 2 {
		if tx.keep(q, nil); len(tx.head) > 0 || !tx.tooLong() {
			t.Errorf("%d commands are kept", len(tx.head))
		}
	}
}
