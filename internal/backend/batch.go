package backend

import (
	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Batch is a run, which is commands of a client that are to be forwarded together, and the client's replies that
// are not written yet.
type Batch struct {
	client.Output
	Timing Timing

	run    [][]byte                // the commands
	cmds   []*commandtable.Command // the table's row for each of run
	size   int                     // bytes of run
	long   bool                    // the run is one command that is long, or whose reply is expected to be
	over   way                     // that one of its commands needs, and that does for all others
	rights RightsChange            // the changes of rights that the run may cause
	nodes  clusterRun
}

// clusterRun is what only a cluster needs of a run.
type clusterRun struct {
	args  [][][]byte // the words of each of the run
	plans []*cluster.Plan
	words []int   // for all commands of the run, which of their words are keys
	keys  [][]int // the same for each: parts of words
	slots []int   // of each of the run, when each has a single key
}

const (
	keepBytes = 2 * resp.Long
	keepRun   = 1024
)

// The bounds of a run: it is written upstream at once, and its replies are gathered in memory.
const (
	runCommands = 128
	runBytes    = 256 << 10 // of commands, and of replies as far as those before tell
)

// add adds a command, which needs that way, to the run.
func (b *Batch) add(raw []byte, words [][]byte, c *commandtable.Command, over way) {
	b.run = append(b.run, raw)
	b.cmds = append(b.cmds, c)
	b.nodes.args = append(b.nodes.args, words)
	b.size += len(raw)
	b.Timing.note(c)
	b.rights.Note(c, words)
	b.over = max(b.over, over)
}

// copied says that no connection upstream can still be reading the run's bytes.
func (b *Batch) copied() bool { return b.size < upstream.CopiedBelow }

// take gathers a plan's reply, and says how long it is. What came in pieces is kept in them.
func (b *Batch) take(p *cluster.Plan) (n int) {
	for _, piece := range p.Pieces {
		if n += len(piece); b.Room(len(piece)) {
			b.Take(piece)
			b.Total += len(piece)
		}
	}
	b.Reply(p.Reply)
	return n + len(p.Reply)
}

// clearRun empties the run.
func (b *Batch) clearRun() {
	clear(b.run)
	clear(b.nodes.args)
	for _, p := range b.nodes.plans { // plans keep replies
		*p = cluster.Plan{}
	}
	b.nodes.args, b.nodes.plans = b.nodes.args[:0], b.nodes.plans[:0]
	b.run, b.cmds, b.size, b.long, b.over = b.run[:0], b.cmds[:0], 0, false, shared
	b.rights, b.Timing.run = RightsChange{}, telemetry.Run{}
}

// Empty makes b ready for another client, and says whether it is worth keeping: it has not grown much.
func (b *Batch) Empty() bool {
	b.clearRun()
	b.To = nil
	if cap(b.Bytes) > keepBytes || cap(b.run) > keepRun {
		return false
	}
	b.Bytes = b.Bytes[:0]
	return true
}
