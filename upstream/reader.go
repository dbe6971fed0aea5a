package upstream

import (
	"bytes"
	"errors"
	"io"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	readBuffer = resp.Long
	// gatheredFrame is how much of a frame a shared pipe gathers before it hands the frame over in pieces: see resp.Long. A
	// frame that is longer than the buffer always comes in pieces.
	gatheredFrame = readBuffer / 2
)

// readonlyError is how a Redis that is no master refuses a write.
var readonlyError = []byte("-READONLY ")

// reader takes a link's replies apart and hands each request its own bytes.
// It belongs to the link's reader goroutine alone.
//
// buf[start:frame] is whole frames for chain.head not handed over yet, [frame:pos] is
// the part of the current frame that has been scanned, [pos:end] has not been scanned.
type reader struct {
	link  *link
	scan  resp.Scanner
	chain chain // requests that wait for replies, oldest first

	buf                    []byte
	start, frame, pos, end int
	inFrame                bool
	push                   bool // the current frame is one
	partial                int  // bytes of the current frame handed over already
	replies                int  // of chain.head: whole frames seen

	answered      chain // got all their replies in this round, not woken yet
	answeredCount int
	answeredBytes int64
}

func newReader(l *link) *reader { return &reader{link: l, buf: make([]byte, readBuffer)} }

// readUntilLost reads until the connection ends or Redis breaks the protocol.
func (rd *reader) readUntilLost() error {
	for {
		n, err := rd.link.conn.Read(rd.buf[rd.end:])
		rd.end += n
		broken := rd.consume()
		rd.release()
		switch {
		case broken != nil:
			return broken
		case errors.Is(err, io.EOF):
			return errClosedByRedis
		case err != nil:
			return err
		}
		rd.makeRoom()
	}
}

// consume hands over what has come in.
func (rd *reader) consume() error {
	for rd.pos < rd.end {
		if !rd.inFrame {
			if err := rd.beginReply(); err != nil {
				return err
			}
		}
		n, done, err := rd.scan.Scan(rd.buf[rd.pos:rd.end])
		if err != nil {
			rd.handOver(rd.frame)
			return violation("%w", err)
		}
		rd.pos += n
		rd.inFrame = !done
		if done {
			rd.finish()
		}
	}
	switch {
	case !rd.inFrame:
		rd.handOver(rd.pos)
	case rd.push:
		rd.handOver(rd.frame)
		rd.dropFrame()
	case rd.link.whole && rd.partial == 0 && rd.end-rd.frame <= gatheredFrame:
		rd.handOver(rd.frame)
	default:
		rd.handOverPart()
	}
	return nil
}

// dropFrame drops what has come of a push.
func (rd *reader) dropFrame() { rd.start, rd.frame = rd.pos, rd.pos }

// handOverPart hands over everything that has come, up to the middle of the current frame.
func (rd *reader) handOverPart() {
	if rd.partial == 0 {
		rd.handOver(rd.frame)
	}
	rd.partial += rd.end - rd.start
	rd.handOver(rd.end)
	r := rd.chain.head
	if r.enter() {
		r.Torn, r.Partial = true, rd.partial
		r.long(rd.partial, rd.replies)
		r.exit()
	}
}

// beginReply finds the request that the frame starting at pos belongs to.
func (rd *reader) beginReply() error {
	rd.frame = rd.pos
	rd.push = rd.buf[rd.pos] == '>'
	if rd.chain.head != nil || rd.push {
		return nil
	}
	if rd.link.passFlight(&rd.chain); rd.chain.head != nil {
		return nil
	}
	// "-ERR max number of clients reached" comes this way. Anything else is not
	// quoted: it could be somebody's data.
	said := rd.buf[rd.pos:rd.end]
	if line, _, whole := bytes.Cut(said, []byte("\r\n")); whole && said[0] == '-' && len(line) < 256 {
		return errors.New("Redis said " + string(line[1:]))
	}
	return violation("a reply that nobody asked for")
}

// finish ends the frame at pos. A push belongs to nobody and is dropped.
func (rd *reader) finish() {
	if rd.push || rd.scan.Kind() == '>' {
		rd.handOver(rd.frame)
		rd.dropFrame()
		return
	}
	r := rd.chain.head
	if rd.partial == 0 && rd.buf[rd.frame] == '-' {
		rd.link.refused(rd.buf[rd.frame:rd.pos])
	}
	if rd.partial > 0 {
		if r.enter() {
			r.long(rd.partial+rd.pos-rd.start, rd.replies)
			r.exit()
		}
		rd.partial = 0
	}
	rd.frame = rd.pos
	rd.replies++
	if rd.replies < len(r.Cmds) {
		return
	}
	rd.handOver(rd.pos)
	rd.replies = 0
	rd.answered.push(rd.chain.pop())
	rd.answeredCount++
	rd.answeredBytes += r.size
}

// handOver gives buf[start:to] to the request at the head. Whole frames of one
// request go over in one call.
func (rd *reader) handOver(to int) {
	if to > rd.start {
		if r := rd.chain.head; r.enter() {
			rd.give(r, rd.buf[rd.start:to])
			r.Replied, r.Torn, r.Partial = rd.replies, false, 0
			if rd.replies < len(r.Cmds) {
				r.quietSince.Store(int64(telemetry.Clock()))
			}
			r.exit()
		}
		rd.start = to
	}
}

// give has r's Sink take p. A script may put line ends into its error, and Redis 8.2.3 sends them: what follows then looks
// like the next replies, and may come when this client has the reply it waits for. So a private connection for scripts on
// which there may have been an error, also within an array, is not given to another client.
func (rd *reader) give(r *Request, p []byte) {
	if rd.link.whole {
		r.Sink.Reply(p)
		return
	}
	if rd.link.spills && (p[0] == '-' || bytes.Contains(p, []byte("\n-"))) {
		rd.link.dead.Store(true)
	}
	r.quietSince.Store(takingNow)
	r.Sink.Reply(p)
}

// release wakes the requests answered in this round.
func (rd *reader) release() {
	if rd.answeredCount == 0 {
		return
	}
	rd.link.settle(rd.answeredCount, rd.answeredBytes)
	rd.link.replied.Store(true)
	rd.answeredCount, rd.answeredBytes = 0, 0
	now := telemetry.Clock()
	for rd.answered.head != nil {
		r := rd.answered.pop()
		r.Answered = now
		r.wake <- wakeDone
	}
}

// makeRoom readies buf for the next Read: what is there of an unfinished frame, at most gatheredFrame, moves to the front.
func (rd *reader) makeRoom() {
	if rd.start > 0 {
		copy(rd.buf, rd.buf[rd.start:rd.end])
		rd.frame -= rd.start
		rd.pos -= rd.start
		rd.end -= rd.start
		rd.start = 0
	}
}
