package own

import (
	"testing"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// Where a transaction before a cluster is queued, and what becomes of it at EXEC. Its commands are named by their
// slots; - has no keys. In upper case: it is at another node than the slot's owner then.
func TestTransactionOfACluster(t *testing.T) {
	t.Parallel()
	const none, refused, redirected = 0, 1, 2
	slots := map[rune]int{'-': backend.NoSlot, 'a': 1, 'b': 2, 'A': 1, 'B': 2}
	for _, c := range []struct {
		commands string
		moves    string // at which of them it goes to the slot's node
		long     bool   // they are more than is queued again
		answer   int    // of its node, to a command or to EXEC
		watched  bool
		ends     ending
	}{
		{commands: "", ends: endsByExec},
		{commands: "---", ends: endsByExec},
		{commands: "--a-a", ends: endsByExec},
		{commands: "--A", moves: "A", ends: endsByExec},
		{commands: "--Aaa", moves: "A", ends: endsByExec},
		{commands: "aA", ends: endsByExec}, // the slot has moved since, which EXEC finds out
		{commands: "--A", long: true, ends: endsByExec},
		{commands: "ab", ends: endsCross},
		{commands: "a-B", ends: endsCross},
		{commands: "ab", answer: redirected, watched: true, ends: endsCross},
		{commands: "a", answer: refused, ends: endsRefused},
		{commands: "a", answer: refused, watched: true, ends: endsRefused},
		{commands: "a", answer: redirected, ends: endsElsewhere},
		{commands: "a", answer: redirected, watched: true, ends: endsNull},
		{commands: "a", answer: redirected, long: true, ends: endsTooLong},
		{commands: "a", answer: redirected, long: true, watched: true, ends: endsNull},
		{commands: "a", answer: refused, long: true, ends: endsRefused},
	} {
		tx := &transaction{slot: backend.NoSlot}
		q := queuedCommand{raw: make([]byte, 100), cmd: &commandtable.Command{Name: "get"}}
		if c.long {
			q.raw = make([]byte, transactionKept)
		}
		moves := ""
		for _, letter := range c.commands {
			if tx.place(slots[letter], letter < 'a' && letter != '-') {
				moves += string(letter)
			}
			tx.keep(q, nil)
		}
		r := cluster.Refusal{}
		if c.answer == redirected {
			r = cluster.Incomplete
		}
		if ends := tx.ends(c.answer != none, r, c.watched); moves != c.moves || ends != c.ends {
			t.Errorf("%+v: moves at %q, ends %d", c, moves, ends)
		}
		if kept := len(tx.cmds); c.long && (kept > 0 || tx.held() > 0) || !c.long && kept != len(c.commands) {
			t.Errorf("%+v: %d commands and %d bytes are kept", c, kept, tx.held())
		}
	}
}

// What EXEC of a transaction that has not run is answered: as by one Redis, where that would run none of it either.
func TestAnswerToExec(t *testing.T) {
	t.Parallel()
	for end, want := range map[ending]string{
		endsCross:   "-" + cluster.CrossSlot + "\r\n",
		endsNull:    "_\r\n",
		endsTooLong: "-" + tooLong + "\r\n",
		endsRefused: "-NOPERM x\r\n",
	} {
		if got := string(end.answer([]byte("-NOPERM x\r\n"), 3)); got != want {
			t.Errorf("%d: %q, want %q", end, got, want)
		}
	}
}
