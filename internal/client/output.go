package client

import (
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	keepBytes  = 2 * resp.Long
	pieceBytes = 4 << 20 // of replies gathered in one piece
)

// Output is the replies of a client that are gathered and not written yet.
type Output struct {
	To    *downstream.Conn // the client
	Bytes []byte           // the last of them: those after pieces
	Total int              // bytes that were gathered, since somebody set it to 0

	pieces [][]byte // those before Bytes
	size   int      // bytes of pieces
}

// Reply gathers replies from a shared pipe.
func (o *Output) Reply(p []byte) {
	if !o.Room(len(p)) {
		return
	}
	// in one piece they would be copied time and again, while all clients of the pipe wait
	if len(o.Bytes) >= pieceBytes {
		o.setAside()
	}
	o.Bytes = append(o.Bytes, p...)
	o.Total += len(p)
}

// setAside begins a new piece for replies, after those gathered so far.
func (o *Output) setAside() {
	if len(o.Bytes) == 0 {
		return
	}
	o.pieces = append(o.pieces, o.Bytes)
	o.size += len(o.Bytes)
	o.Bytes = nil
}

// Take gathers a long reply as it is, without a copy.
func (o *Output) Take(p []byte) {
	o.setAside()
	o.pieces, o.size = append(o.pieces, p), o.size+len(p)
}

// Held is how many bytes of replies are not written yet.
func (o *Output) Held() int { return o.size + len(o.Bytes) }

// Room says whether n more bytes of replies may be gathered; if not, it drops those that have been.
func (o *Output) Room(n int) bool {
	if !o.To.Writer.MayGather(o.Held() + n) {
		o.pieces, o.size, o.Bytes = nil, 0, nil
		return false
	}
	return true
}

// Truncate forgets the last n bytes gathered, of a reply whose rest was lost.
func (o *Output) Truncate(n int) {
	for {
		k := min(n, len(o.Bytes))
		o.Bytes = o.Bytes[:len(o.Bytes)-k]
		last := len(o.pieces) - 1
		if n -= k; n == 0 || last < 0 {
			return
		}
		o.Bytes, o.pieces = o.pieces[last], o.pieces[:last]
		o.size -= len(o.Bytes)
	}
}

// Full says that enough replies have been gathered to be written.
func (o *Output) Full() bool { return len(o.Bytes) >= resp.Long || o.pieces != nil }

// Flush writes the replies gathered so far; silent: they are not wanted.
func (o *Output) Flush(silent bool) {
	if silent {
		o.pieces, o.size, o.Bytes = nil, 0, o.Bytes[:0]
		o.To.Writer.Gathered(0)
	}
	if o.Held() > 0 && o.Room(0) { // what is answered here is counted, too, while the client does not read
		o.To.Writer.WriteGathered(o.pieces, o.Bytes)
	}
	o.pieces, o.size = nil, 0
	o.Bytes = o.Bytes[:0]
	if cap(o.Bytes) > keepBytes {
		o.Bytes = nil
	}
}

// Flush writes the replies gathered so far, if a command is at work, or drops those that are not wanted.
func (c *Client) Flush() {
	if c.Out != nil {
		c.Out.Flush(c.Replies.Silent)
	}
}

// Give gives the client replies.
func (c *Client) Give(replies []byte) { c.Out.Bytes = append(c.Out.Bytes, replies...) }

// Relay gives the client a reply of Redis', or the error that stands for it.
func (c *Client) Relay(reply []byte, err error) {
	if err != nil {
		c.Fail(err)
		return
	}
	c.Give(reply)
}

// Error gives the client an error, whose line is without the leading '-'.
func (c *Client) Error(line string) { c.Out.Bytes = resp.AppendError(c.Out.Bytes, line) }

// OK gives the client that reply.
func (c *Client) OK() { c.Out.Bytes = resp.AppendSimple(c.Out.Bytes, "OK") }

// Push gives the client what it gets even if it wants no replies.
func (c *Client) Push(frame []byte) {
	silent := c.Replies.Silent
	if silent {
		c.Flush()
	}
	c.Give(frame)
	if silent {
		c.Out.Flush(false)
	}
}

// MayHold says whether n more bytes of replies may be held for the client, which is dropped if not. It implements
// cluster.Holder.
func (c *Client) MayHold(n int) bool {
	if c.Out != nil {
		n += c.Out.Held()
	}
	return c.Writer.MayGather(n)
}
