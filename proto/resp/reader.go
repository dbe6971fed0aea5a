package resp

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
)

const (
	// spareMin is the least room for a read into the Reader's own buffer.
	spareMin = 512
	// announcedMin is the least room for the rest of an argument whose length is known, unless that is shorter.
	announcedMin = 16 << 10
	// emptyReads is how often src may return neither bytes nor an error.
	emptyReads = 100
)

// ErrReadAheadFull is returned by [Reader.ReadAhead] when as much is held as
// its caller allows.
var ErrReadAheadFull = errors.New("read-ahead buffer is full")

// standIn is the command that redcon gets in place of one that is too long for its buffer.
var standIn = Command([][]byte{nil})

// emptyLines fill the end of redcon's buffer where nothing else has room. redcon skips them and begins its buffer anew.
var emptyLines = []byte(strings.Repeat("\n", len(standIn)-1))

// A Reader stands between a client's socket and redcon. redcon can be made to
// panic, to spin or to overflow its stack by a few bytes; the Reader hands it
// whole, bounded, well-formed multibulk commands only. Inline commands are
// rewritten, what Redis swallows is swallowed.
//
// The usual case costs nothing but a look: bytes are read from the socket into
// the caller's slice, examined in place, and returned when they end with a
// command. An idle Reader holds no buffer.
//
// A command that is longer than the caller's slice is read into a buffer of its
// own, and its caller gets it by Long, without a copy: redcon gets a stand-in.
// redcon itself would double its buffer again and again, and copy the command.
//
// All bytes of a Reader are in at most two places, in this order:
//
//	ready   examined, complete, to be delivered first
//	held    not delivered; the first seen bytes of it have been examined
//
// A Reader is used by one goroutine at a time.
type Reader struct {
	src    io.Reader
	limits Limits
	req    request // the unfinished command, which held[:seen] ends with
	ready  []byte
	held   []byte
	seen   int
	long   []byte // see Long
	err    error  // the *ProtocolError that ended the stream
	srcErr error  // what ended src
}

// NewReader returns a Reader of src within the limits l.
func NewReader(src io.Reader, l Limits) *Reader {
	return &Reader{src: src, limits: l.filled()}
}

// SetLimits changes the limits. It may be called between Reads, and by the
// source in its own Read for what that returns. The commands
// of the next Read are judged by them, and so is one that arrived together
// with earlier ones and broke the limits until now: as in Redis, an AUTH takes
// effect before what was sent behind it is looked at.
func (r *Reader) SetLimits(l Limits) { r.limits = l.filled() }

// Unfinished returns the number of bytes that have arrived of a command that
// is not complete, and of what was read ahead and not delivered. The buffer for
// them may be two and a half times as long, or announcedMin longer.
func (r *Reader) Unfinished() int {
	return r.req.size + max(0, len(r.held)-r.seen) + len(r.ready)
}

// Read fills p with complete commands. When a command is malformed, what came
// before it is delivered first; the next Read and all later ones return a
// [*ProtocolError]. Errors of the source come after the complete commands
// received before them. A command that is too long for p comes alone: p has
// another one that stands in for it, and Long returns it. A p that is too short
// even for that is filled with empty lines.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) < len(standIn) {
		return copy(p, emptyLines), nil
	}
	for {
		switch {
		case len(r.ready) > 0:
			return r.deliver(p), nil
		case r.err != nil:
			return 0, r.err
		case len(r.held) > r.seen:
			r.examineHeld()
		case len(r.held) >= len(p):
			if err := r.readHeld(math.MaxInt); err != nil {
				return 0, err
			}
		default:
			n := copy(p, r.held)
			r.held, r.seen = nil, 0
			if n, err := r.readInto(p, n); n > 0 || err != nil {
				return n, err
			}
		}
	}
}

// deliver puts what is ready into p, as far as it fits there.
func (r *Reader) deliver(p []byte) (n int) {
	for n < len(r.ready) {
		k := wholeCommand(r.ready[n:], &noLimits)
		if n+k > len(p) && n == 0 {
			r.long = r.takeReady(k)
			return copy(p, standIn)
		}
		if n+k > len(p) {
			break
		}
		n += k
	}
	return copy(p, r.takeReady(n))
}

// takeReady takes the first n bytes of what is ready.
func (r *Reader) takeReady(n int) []byte {
	b := r.ready[:n:n]
	if r.ready = r.ready[n:]; len(r.ready) == 0 {
		r.ready = nil
	}
	return b
}

// Long returns the command in place of which the last Read has returned another
// one, and nil if it has not. It returns it once; it is the caller's.
func (r *Reader) Long() []byte {
	long := r.long
	r.long = nil
	return long
}

// ReadAhead reads once from the source and keeps what came for later Reads. It
// is for another goroutine that waits for the client to go away while nobody
// reads; the caller sees to it that no Read runs meanwhile. max bounds the
// bytes held: when they are reached, ErrReadAheadFull is returned at once. An
// error of the source is returned, and returned by Read too, after the data;
// except a timeout, by which the caller can end a ReadAhead that waits.
func (r *Reader) ReadAhead(max int) error {
	if r.err != nil {
		return r.err
	}
	room := max - len(r.held) - len(r.ready)
	if room <= 0 {
		return ErrReadAheadFull
	}
	return r.readHeld(room)
}

// Ahead returns what ReadAhead has kept, as it came, if it begins with the next
// command; else nothing.
func (r *Reader) Ahead() []byte {
	if len(r.ready) > 0 {
		return nil
	}
	return r.held
}

// readInto reads into p behind its first n bytes, which are the examined ones
// of an unfinished command, and returns the number of bytes to deliver. It
// returns 0 and no error when the answer is in the Reader's fields.
func (r *Reader) readInto(p []byte, n int) (int, error) {
	for n < len(p) {
		k, err := r.fetch(p[n:])
		whole, rest := r.examine(p[:n+k], n)
		n += k
		if whole > 0 || len(r.ready) > 0 || r.err != nil {
			r.hold(p[rest:n])
			return whole, nil
		}
		if rest > 0 {
			n = copy(p, p[rest:n])
		}
		if err != nil {
			r.hold(p[:n])
			return 0, err
		}
	}
	r.hold(p)
	r.seen = n
	return 0, nil
}

// examineHeld examines what is held and not seen.
func (r *Reader) examineHeld() {
	b := r.held
	whole, rest := r.examine(b, r.seen)
	if whole > 0 {
		r.ready = b[:whole:whole]
	}
	if r.held = b[rest:]; len(r.held) == 0 {
		r.held = nil
	}
}

// readHeld reads at most room bytes behind the held ones.
func (r *Reader) readHeld(room int) error {
	least, more := spareMin, max(len(r.held), spareMin)
	if rest := r.req.announced(); rest > 0 {
		least, more = min(least, rest), min(max(len(r.held), announcedMin), rest)
	}
	if cap(r.held)-len(r.held) < least {
		r.held = slices.Grow(r.held, more)
	}
	spare := r.held[len(r.held):cap(r.held)]
	n, err := r.fetch(spare[:min(room, len(spare))])
	if r.held = r.held[:len(r.held)+n]; len(r.held) == 0 {
		r.held = nil
	}
	return err
}

// hold keeps a copy of the bytes that cannot be delivered yet.
func (r *Reader) hold(b []byte) {
	r.held = nil
	if len(b) > 0 && r.err == nil {
		r.held = append(r.held, b...)
	}
}

// fetch reads from the source. A final error is kept; a timeout is not, since
// the caller's deadlines come and go.
func (r *Reader) fetch(b []byte) (int, error) {
	if r.srcErr != nil {
		return 0, r.srcErr
	}
	for range emptyReads {
		n, err := r.src.Read(b)
		if err != nil {
			var timeout interface{ Timeout() bool }
			if !errors.As(err, &timeout) || !timeout.Timeout() {
				r.srcErr = err
			}
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	r.srcErr = io.ErrNoProgress
	return 0, r.srcErr
}

// examine looks at b, whose first seen bytes have been examined before and
// belong to the unfinished command. It moves the complete commands together at
// b[:whole] and returns where the bytes begin that are still to be held; seen
// counts the examined ones of these.
//
// From the first inline command on, which grows when it is rewritten, complete
// commands are copied to ready instead. An inline command or an error behind
// commands in place is left to the next Read, which finds it in front, and may
// find other limits.
func (r *Reader) examine(b []byte, seen int) (whole, rest int) {
	start, pos := 0, seen
	r.seen = 0
	for {
		if r.req.state == atStart {
			n := wholeCommands(b[pos:], &r.limits)
			whole = r.keepBytes(b, whole, pos, pos+n)
			pos += n
			start = pos
			if pos == len(b) || b[pos] != '*' && whole > 0 {
				return whole, pos
			}
		}
		n, v, err := r.req.step(b[pos:], &r.limits)
		pos += n
		if err == nil {
			switch v {
			case isUnfinished:
				r.seen = pos - start
				return whole, start
			case isCommand:
				whole = r.keepBytes(b, whole, start, pos)
			case isInline:
				r.ready, err = appendInline(r.ready, b[start:pos], &r.limits)
			}
		}
		if err != nil {
			r.req = request{}
			if whole > 0 || len(r.ready) > 0 {
				return whole, start
			}
			r.err = err
			return 0, len(b)
		}
	}
}

// keepBytes adds the complete commands b[from:to] to those at b[:whole], or to ready
// when these are there already. It returns the new whole.
func (r *Reader) keepBytes(b []byte, whole, from, to int) int {
	if len(r.ready) > 0 {
		r.ready = append(r.ready, b[from:to]...)
		return whole
	}
	if whole != from {
		copy(b[whole:], b[from:to])
	}
	return whole + to - from
}
