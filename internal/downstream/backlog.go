package downstream

const (
	firstPiece = 4 << 10 // most clients that do not read send nothing either
	nextPiece  = 64 << 10
	mostKept   = 1 << 30 // of one client, as Redis' client-query-buffer-limit
)

// backlog is what a client has sent while a write to it waited, and nobody has read as commands yet.
type backlog struct {
	pieces  [][]byte // each filled in turn
	read    int      // bytes of the first piece that have been read as commands
	room    int      // bytes that all pieces have room for
	account Account
}

// space is where more may be put; nil: no more may be kept. Another client may be dropped for it.
func (b *backlog) space() []byte {
	if last := len(b.pieces) - 1; last >= 0 && len(b.pieces[last]) < cap(b.pieces[last]) {
		p := b.pieces[last]
		return p[len(p):cap(p)]
	}
	size := nextPiece
	if len(b.pieces) == 0 {
		size = firstPiece
	}
	if b.room+size > mostKept || !b.account.trySet(b.room+size) {
		return nil
	}
	p := make([]byte, 0, size)
	b.pieces = append(b.pieces, p)
	b.room += size
	return p[:size]
}

// filled notes that n bytes of space are filled.
func (b *backlog) filled(n int) {
	last := &b.pieces[len(b.pieces)-1]
	*last = (*last)[:len(*last)+n]
}

func (b *backlog) empty() bool { return len(b.pieces) == 0 }

// takeOut moves bytes to p, of one piece at a time. It returns 0 for a piece that has nothing in it.
func (b *backlog) takeOut(p []byte) int {
	first := b.pieces[0]
	n := copy(p, first[b.read:])
	if b.read += n; b.read < len(first) {
		return n
	}
	b.pieces[0], b.read = nil, 0
	b.room -= cap(first)
	if b.pieces = b.pieces[1:]; len(b.pieces) == 0 {
		b.pieces = nil
	}
	b.account.Set(b.room)
	return n
}

// empties throws everything away.
func (b *backlog) empties() {
	b.pieces, b.read, b.room = nil, 0, 0
	b.account.Set(0)
}
