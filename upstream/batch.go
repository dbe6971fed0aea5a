package upstream

import (
	"io"
	"net"

	"github.com/lockproxy/lockproxy/internal/socket"
)

const (
	// CopiedBelow is the length below which a Pipe copies a command before it writes it,
	// because that is cheaper than a slot of writev. A longer one is written from the
	// client's own bytes, also after its Do has been ended.
	CopiedBelow = 16 << 10
	// keepArena is the largest copy buffer a link keeps for its next batch.
	keepArena = 256 << 10
)

// batch is the bytes of the next write to Redis.
type batch struct {
	arena  []byte      // small commands, copied one after the other
	sealed int         // arena[:sealed] is in pieces already
	pieces net.Buffers // set as soon as a long command is in the batch
}

// addCommands appends the commands in order. Those of CopiedBelow bytes or more are not
// copied: they must stay as they are until the batch is written.
func (b *batch) addCommands(cmds [][]byte) {
	for _, c := range cmds {
		if len(c) < CopiedBelow {
			b.arena = append(b.arena, c...)
			continue
		}
		b.seal()
		b.pieces = append(b.pieces, c)
	}
}

// seal makes a piece of the arena's new bytes. A later growth of the arena
// moves it, but the piece keeps the old bytes.
func (b *batch) seal() {
	if b.sealed < len(b.arena) {
		b.pieces = append(b.pieces, b.arena[b.sealed:len(b.arena):len(b.arena)])
		b.sealed = len(b.arena)
	}
}

// writeTo writes everything and says how many bytes w took.
func (b *batch) writeTo(w io.Writer) (int64, error) {
	if len(b.pieces) == 0 {
		n, err := w.Write(b.arena)
		return int64(n), err
	}
	b.seal()
	rest := b.pieces                     // WriteTo changes the slice that it is called on
	return rest.WriteTo(socket.Plain(w)) // by one writev
}

// reset empties the batch and lets go of the clients' buffers.
func (b *batch) reset() {
	clear(b.pieces)
	b.pieces, b.sealed, b.arena = b.pieces[:0], 0, b.arena[:0]
	if cap(b.arena) > keepArena {
		b.arena = nil
	}
}
