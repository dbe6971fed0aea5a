package cluster

import (
	"slices"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// longReply is the length from which a reply stays in the pieces it came in: copying them together would hold it twice.
	longReply = 128 << 10
	// freeReplies is how many bytes one node may answer in a round before a Holder is asked.
	freeReplies = 64 << 10
)

// Holder says whether a client may have so many bytes of replies held for it. It is asked by the goroutines that read
// replies, one at a time, and must block on nobody. After it has said no the replies are thrown away.
type Holder interface{ MayHold(n int) bool }

// For makes the executor ask h before it gathers more than freeReplies from a node.
func (e *Executor) For(h Holder) *Executor {
	e.memory.holder = h
	return e
}

// hold asks whether n more bytes may be held.
func (e *Executor) hold(n int) bool {
	if e.memory.holder == nil {
		return true
	}
	e.memory.mu.Lock()
	defer e.memory.mu.Unlock()
	e.memory.held += n
	return e.memory.holder.MayHold(e.memory.held)
}

// replyCollector is the Sink of what a node answers in a round: it keeps the replies, or passes them on.
type replyCollector struct {
	e      *Executor
	pieces [][]byte
	size   int
	refuse bool  // the client may hold no more
	direct *unit // the only unit, if its reply is passed on as it comes unless it is an error; else nil
}

// Reply implements upstream.Sink.
func (c *replyCollector) Reply(p []byte) {
	if u := c.direct; u != nil {
		if u.begun || p[0] != '-' && p[0] != '!' {
			u.begun = true
			u.plan.stream.Reply(p)
			return
		}
		c.direct = nil // it may be a redirect
	}
	more := len(p)
	if c.size += more; c.size-more <= freeReplies {
		more = c.size
	}
	if c.refuse || c.size > freeReplies && !c.e.hold(more) {
		c.pieces, c.refuse = nil, true
		return
	}
	last := len(c.pieces) - 1
	if last >= 0 && len(c.pieces[last])+len(p) <= longReply {
		c.pieces[last] = append(c.pieces[last], p...)
		return
	}
	c.pieces = append(c.pieces, append([]byte(nil), p...))
}

// reset readies c for the next round. What was kept belongs to the plans.
func (c *replyCollector) reset(e *Executor, units []*unit) {
	*c = replyCollector{e: e, pieces: c.pieces[:0]}
	if len(units) == 1 && units[0].plan.streams() && !units[0].ask {
		c.direct = units[0]
	}
}

// reply is one of a node's: whole, or, when it is long and no error, in pieces.
type reply struct {
	whole  []byte
	pieces [][]byte
}

// joined is the reply in one piece.
func (r reply) joined() []byte {
	if r.whole == nil {
		return slices.Concat(r.pieces...)
	}
	return r.whole
}

// cut appends the first n replies of what has come to dst. The pipe has seen that there are so many.
func (c *replyCollector) cut(dst []reply, n int) []reply {
	var (
		scan  resp.Scanner
		parts [][]byte // of the current reply
		size  int
	)
	for _, b := range c.pieces {
		for len(b) > 0 && n > 0 {
			used, done, err := scan.Scan(b)
			if err != nil {
				return dst
			}
			part := b[:used:used]
			b, size = b[used:], size+used
			switch {
			case !done:
				parts = append(parts, part)
				continue
			case parts == nil:
				dst = append(dst, reply{whole: part})
			case size <= longReply || parts[0][0] == '-' || parts[0][0] == '!':
				dst = append(dst, reply{whole: slices.Concat(append(parts, part)...)})
			default:
				dst = append(dst, reply{pieces: append(parts, part)})
			}
			n--
			parts, size = nil, 0
		}
	}
	return dst
}

// streams says that the reply is to be passed on as it comes: what several nodes answer cannot be.
func (p *Plan) streams() bool { return p.stream != nil && !p.merge && !p.scan }

// Stream makes Do hand the command's reply to s as it comes, if one node gives it and it is no error: then Streamed is
// set, and Reply is nil. It is used with Executor.Private, because s may block, for a plan that is alone in Do. It holds
// until the next Set.
func (p *Plan) Stream(s upstream.Sink) { p.stream = s }

// InPieces makes Do return a long reply as it was gathered, in Pieces in place of Reply.
func (p *Plan) InPieces() { p.inPieces = true }

// hand gives the plan what its only unit got.
func (p *Plan) hand(u *unit) {
	p.Reply, p.Pieces, p.Err, p.Streamed = u.reply, u.pieces, u.err, u.begun
	if p.Pieces != nil && !p.inPieces {
		p.Reply, p.Pieces = slices.Concat(p.Pieces...), nil
	}
}

// join returns a unit's reply in one piece, to be merged with others.
func (u *unit) join() []byte {
	u.reply, u.pieces = reply{u.reply, u.pieces}.joined(), nil
	return u.reply
}
