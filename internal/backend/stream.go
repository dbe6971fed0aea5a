package backend

import (
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// stream is the sink of a private pipe: it passes replies on as they come. Of a long reply only the beginning is copied.
type stream struct {
	f       *Forwarder
	b       *Batch
	to      downstream.Passage
	scan    resp.Scanner
	whole   int // how many bytes of the batch's replies end with a whole reply
	frame   int // bytes of the current reply
	longest int
	at      int // which reply that is
	replies int // whole ones
	total   int
}

func (f *Forwarder) newStream(b *Batch) *stream {
	return &stream{f: f, b: b, to: f.client.Writer.Passage(), whole: len(b.Bytes)}
}

func (t *stream) Reply(p []byte) {
	b := t.b
	for seen := 0; seen < len(p); {
		n, done, err := t.scan.Scan(p[seen:])
		if err != nil {
			t.f.client.End.HangUp(downstream.Left, "broken reply from upstream")
			return
		}
		seen += n
		t.frame += n
		t.total += n
		if done {
			t.ended(len(b.Bytes) + seen)
		}
	}
	if !t.to.Within() && len(b.Bytes)+len(p) < resp.Long {
		b.Bytes = append(b.Bytes, p...)
		return
	}
	if len(b.Bytes) > 0 {
		t.pass(b.Bytes, true)
	}
	t.pass(p, t.frame > 0)
	b.Bytes, t.whole = b.Bytes[:0], 0
}

// ended notes the end of the current reply, which is there in the batch's replies.
func (t *stream) ended(there int) {
	t.whole = there
	if t.frame > t.longest {
		t.longest, t.at = t.frame, t.replies
	}
	t.replies++
	t.frame = 0
}

// pass writes p to a client that is still there and wants it; within: more follows that is written before anything else.
func (t *stream) pass(p []byte, within bool) {
	switch {
	case t.f.client.Replies.Silent:
	case t.f.client.End.Over():
		t.to.GiveUp("left within a reply")
	default:
		t.to.Write(p, within)
	}
}

// finish ends the run: the part of a reply that will not be completed is taken back, or, when the client has some
// of it already, the client is cut off, since nothing after it could be understood.
func (t *stream) finish() {
	if t.frame > 0 {
		t.to.GiveUp("upstream lost within a reply")
		t.b.Bytes = t.b.Bytes[:t.whole]
	}
}
