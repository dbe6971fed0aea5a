package backend

import (
	"bytes"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Batch is a run, which is commands of a client that are to be forwarded together, and the client's replies that
// are not written yet.
type Batch struct {
	Guard *downstream.Conn // the client
	Out   []byte           // replies not written yet: those after full

	full     [][]byte // replies before Out, in pieces
	fullSize int      // bytes of full
	total    int      // bytes of replies since the run began
	gone     bool     // Out does not have all replies of the run any more

	run     [][]byte                // the commands
	cmds    []*commandtable.Command // the table's row for each of run; nil: it has none
	size    int                     // bytes of run
	scripts bool                    // the run has scripts in it
	echoes  bool                    // the run has commands whose errors may look like several replies
	keys    []scriptcache.Key
	nodes   clusterRun
}

// clusterRun is what only a cluster needs of a run.
type clusterRun struct {
	args  [][][]byte // the words of each of the run
	plans []*cluster.Plan
	words []int           // for all commands of the run, which of their words are keys
	keys  [][]int         // the same for each: parts of words
	keyed []cluster.Keyed // the run, when each command has a single key
	apart bool            // replies are to be kept in the plans, whole, and not sent to the client
}

const (
	flushAt   = 64 << 10 // replies gathered before they are written
	keepBytes = 2 * flushAt
	keepRun   = 1024
)

// The bounds of a run: it is written upstream at once, and its replies are gathered in memory.
const (
	runCommands = 128
	runBytes    = 256 << 10 // of commands, and of replies as far as those before tell
	pieceBytes  = 4 << 20   // of replies gathered in one piece
)

var _ upstream.Sink = (*Batch)(nil)

// Add adds a command to the run.
func (b *Batch) Add(raw []byte, words [][]byte, c *commandtable.Command) {
	b.run = append(b.run, raw)
	b.cmds = append(b.cmds, c)
	b.nodes.args = append(b.nodes.args, words)
	b.size += len(raw)
	if c != nil {
		b.scripts = b.scripts || c.Script != commandtable.NoScript
		b.echoes = b.echoes || c.Echoes
	}
}

// Run is how many commands are in the run.
func (b *Batch) Run() int { return len(b.run) }

// First is the first command of the run, with its row in the table.
func (b *Batch) First() (c *commandtable.Command, words [][]byte) { return b.cmds[0], b.nodes.args[0] }

// Copied says that no connection upstream can still be reading the run's bytes.
func (b *Batch) Copied() bool { return b.size < upstream.CopiedBelow }

// Reply gathers replies from a shared pipe.
func (b *Batch) Reply(p []byte) {
	if !b.room(len(p)) {
		return
	}
	if len(b.Out) >= pieceBytes { // in one piece they would be copied time and again, while all clients of the pipe wait
		b.setAside()
	}
	b.Out = append(b.Out, p...)
	b.total += len(p)
}

// setAside begins a new piece for replies, after those gathered so far.
func (b *Batch) setAside() {
	b.gone = true
	if len(b.Out) == 0 {
		return
	}
	b.full = append(b.full, b.Out)
	b.fullSize += len(b.Out)
	b.Out = nil
}

// Take gathers a long reply as it is, without a copy.
func (b *Batch) Take(p []byte) {
	b.setAside()
	b.full, b.fullSize = append(b.full, p), b.fullSize+len(p)
}

// Held is how many bytes of replies are not written yet.
func (b *Batch) Held() int { return b.fullSize + len(b.Out) }

// room says whether n more bytes of replies may be gathered; if not, it drops those that have been.
func (b *Batch) room(n int) bool {
	if !b.Guard.MayGather(b.Held() + n) {
		b.full, b.fullSize, b.Out, b.gone = nil, 0, nil, true
		return false
	}
	return true
}

// truncate forgets the last n bytes gathered, of a reply whose rest was lost.
func (b *Batch) truncate(n int) {
	for {
		k := min(n, len(b.Out))
		b.Out = b.Out[:len(b.Out)-k]
		last := len(b.full) - 1
		if n -= k; n == 0 || last < 0 {
			return
		}
		b.Out, b.full = b.full[last], b.full[:last]
		b.fullSize -= len(b.Out)
	}
}

// take gathers a plan's reply, and says how long it is. What came in pieces is kept in them.
func (b *Batch) take(p *cluster.Plan) (n int) {
	for _, piece := range p.Pieces {
		if n += len(piece); b.room(len(piece)) {
			b.setAside()
			b.full, b.fullSize = append(b.full, piece), b.fullSize+len(piece)
			b.total += len(piece)
		}
	}
	b.Reply(p.Reply)
	return n + len(p.Reply)
}

// Full says that enough replies have been gathered to be written.
func (b *Batch) Full() bool { return len(b.Out) >= flushAt || b.full != nil }

// Flush writes the replies gathered so far; silent: they are not wanted.
func (b *Batch) Flush(silent bool) {
	if silent {
		b.full, b.fullSize, b.Out = nil, 0, b.Out[:0]
		b.Guard.Gathered(0)
	}
	if b.Held() > 0 && b.room(0) { // what is answered here is counted, too, while the client does not read
		b.Guard.WriteGathered(b.full, b.Out)
	}
	b.full, b.fullSize = nil, 0
	b.Out = b.Out[:0]
	if cap(b.Out) > keepBytes {
		b.Out = nil
	}
}

// ClearRun empties the run.
func (b *Batch) ClearRun() {
	clear(b.run)
	clear(b.nodes.args)
	clear(b.nodes.keyed)
	for _, p := range b.nodes.plans { // plans keep replies
		*p = cluster.Plan{}
	}
	b.nodes.args, b.nodes.plans = b.nodes.args[:0], b.nodes.plans[:0]
	b.run, b.cmds, b.size, b.scripts, b.echoes = b.run[:0], b.cmds[:0], 0, false, false
}

// Empty makes b ready for another client, and says whether it is worth keeping: it has not grown much.
func (b *Batch) Empty() bool {
	b.ClearRun()
	b.Guard = nil
	if cap(b.Out) > keepBytes || cap(b.run) > keepRun {
		return false
	}
	b.Out = b.Out[:0]
	return true
}

// holds says whether text is in the run's replies, from start on; false if they are not all here any more.
func (b *Batch) holds(start int, text string) bool {
	return !b.gone && bytes.Contains(b.Out[start:], []byte(text))
}

// cutReplies finds where each of the run's replies ends, counted from start; nil when not all are there.
func (b *Batch) cutReplies(start int) (ends []int) {
	if b.gone {
		return nil
	}
	var scan resp.Scanner
	for pos := start; pos < len(b.Out); {
		n, done, err := scan.Scan(b.Out[pos:])
		if err != nil || !done {
			return nil
		}
		pos += n
		ends = append(ends, pos-start)
	}
	if len(ends) != len(b.run) {
		return nil
	}
	return ends
}
