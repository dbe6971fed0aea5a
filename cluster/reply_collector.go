package cluster

import (
	"slices"
	"sync"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// freeReplies is how many bytes one node may answer in a round before a Holder is asked.
	freeReplies = resp.Long
)

// Holder says whether a client may have so many bytes of replies held for it. It is asked by the goroutines that read
// replies, one at a time, and must block on nobody. After it has said no the replies are thrown away.
type Holder interface{ MayHold(n int) bool }

// For makes the executor ask h before it gathers more than freeReplies from a node.
func (e *Executor) For(h Holder) *Executor {
	e.memory.holder = h
	return e
}

// replyMemory bounds what is held of replies.
type replyMemory struct {
	holder Holder     // nil: as much as comes may be held
	mu     sync.Mutex // guards held, and calls of holder; a leaf but for what these take
	held   int        // bytes of replies since Do began
}

// hold asks whether n more bytes may be held.
func (m *replyMemory) hold(n int) bool {
	if m.holder == nil {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held += n
	return m.holder.MayHold(m.held)
}

// replyCollector is the Sink of what a node answers in a round: it keeps the replies, or passes them on.
type replyCollector struct {
	memory *replyMemory
	pieces [][]byte
	size   int
	refuse bool  // the client may hold no more
	direct *unit // the only unit, if its reply is passed on as it comes unless it is an error; else nil
}

// Reply implements upstream.Sink.
func (c *replyCollector) Reply(p []byte) {
	if u := c.direct; u != nil {
		if u.begun = u.begun || !isErrorReply(p); u.begun {
			u.plan.stream.Reply(p)
			return
		}
		c.direct = nil // it may be a redirect
	}
	if c.refuse = c.refuse || !c.fits(len(p)); c.refuse {
		c.pieces = nil
		return
	}
	last := len(c.pieces) - 1
	if last >= 0 && len(c.pieces[last])+len(p) <= resp.Long {
		c.pieces[last] = append(c.pieces[last], p...)
		return
	}
	c.pieces = append(c.pieces, append([]byte(nil), p...))
}

// fits says whether n more bytes may be held. The first freeReplies are asked about together with those that exceed
// them.
func (c *replyCollector) fits(n int) bool {
	before := c.size
	c.size += n
	switch {
	case c.size <= freeReplies:
		return true
	case before <= freeReplies:
		n = c.size
	}
	return c.memory.hold(n)
}

// reset readies c for the next round. What was kept belongs to the plans.
func (c *replyCollector) reset(m *replyMemory, units []*unit) {
	*c = replyCollector{memory: m, pieces: c.pieces[:0]}
	if len(units) == 1 && units[0].streams() {
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
			case size <= resp.Long || isErrorReply(parts[0]):
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

// cutWhole appends the replies to dst. It stops at an error, and at a reply that is not in one piece.
func (c *replyCollector) cutWhole(dst [][]byte) [][]byte {
	var scan resp.Scanner
	for _, p := range c.pieces {
		for len(p) > 0 {
			n, done, err := scan.Scan(p)
			if err != nil || !done || p[0] == '-' {
				return dst
			}
			dst, p = append(dst, p[:n]), p[n:]
		}
	}
	return dst
}

// streams says that the reply to the unit is to be passed on as it comes: what several nodes answer cannot be, nor
// what comes behind ASKING.
func (u *unit) streams() bool { return u.plan.stream != nil && u.plan.only() == u && !u.ask }

// isErrorReply says that a reply begins as errors do.
func isErrorReply(p []byte) bool { return p[0] == '-' || p[0] == '!' }

// Stream makes Do hand the command's reply to s as it comes, if one node gives it and it is no error: then Reply is nil.
// It is used with Executor.Private, because s may block, for a plan that is alone in Do. It holds until the next Set.
func (p *Plan) Stream(s upstream.Sink) { p.stream = s }

// InPieces makes Do return a long reply as it was gathered, in Pieces in place of Reply.
func (p *Plan) InPieces() { p.inPieces = true }

// hand gives the plan what its only unit got.
func (p *Plan) hand(u *unit) {
	p.Reply, p.Pieces, p.Err = u.reply, u.pieces, u.err
	if p.Pieces != nil && !p.inPieces {
		p.Reply, p.Pieces = slices.Concat(p.Pieces...), nil
	}
}

// join returns a unit's reply in one piece, to be merged with others.
func (u *unit) join() []byte {
	u.reply, u.pieces = reply{u.reply, u.pieces}.joined(), nil
	return u.reply
}
