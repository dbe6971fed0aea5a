package downstream

// Output.frames is held from the first to the last byte of whole frames, by whoever writes: what a session has
// gathered, a reply that is passed on as it comes, and the pushes of this proxy's own. Nobody outside of this package
// holds it.

// Write sends whole replies. redcon's empty flushes are ignored.
func (w *Writer) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.frames.Lock()
	defer w.frames.Unlock()
	return w.write(p, 0)
}

// WriteGathered sends whole replies that lie in pieces, which need not end where a reply does. A piece is released when
// it has been written, and then no longer counts as Gathered.
func (w *Writer) WriteGathered(pieces [][]byte, last []byte) {
	w.frames.Lock()
	defer w.frames.Unlock()
	behind := len(last)
	for _, p := range pieces {
		behind += len(p)
	}
	for i, p := range pieces {
		behind -= len(p)
		w.write(p, behind)
		pieces[i] = nil
		w.Gathered(behind)
	}
	if len(last) > 0 {
		w.write(last, 0)
		w.Gathered(0)
	}
}

// WriteLatest sends the whole frames that compose returns. compose is called when nobody else can write, so that its
// frames are up to date. It must not block.
func (w *Writer) WriteLatest(compose func() []byte) {
	w.frames.Lock()
	defer w.frames.Unlock()
	w.write(compose(), 0)
}

// Passage passes frames on to the client as they come, in pieces of any size. While the client has part of a frame
// nobody else can write to it. It is used by one goroutine at a time.
type Passage struct {
	out    *Writer
	within bool // the client has part of a frame, and frames is held
}

// Passage returns a new Passage to the client.
func (w *Writer) Passage() Passage { return Passage{out: w} }

// Within says that the client has part of a frame.
func (f *Passage) Within() bool { return f.within }

// Write sends p. within says that p ends in the middle of a frame, whose rest is then to be written, or given up.
func (f *Passage) Write(p []byte, within bool) {
	if !f.within {
		f.out.frames.Lock()
	}
	f.out.write(p, 0)
	if f.within = within; !within {
		f.out.frames.Unlock()
	}
}

// GiveUp says that no more is written. A client that has part of a frame is cut off: it could not understand what
// follows.
func (f *Passage) GiveUp(why string) {
	if f.within {
		f.out.end.Cut(Left, why)
		f.within = false
		f.out.frames.Unlock()
	}
}
