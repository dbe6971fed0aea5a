package client

// Replies is which replies a client gets.
type Replies struct {
	Silent bool // they are not wanted: CLIENT REPLY OFF, or the command behind SKIP
	Skip   bool // CLIENT REPLY SKIP has just come
	Finish bool // the client is closed, but gets the replies that have been gathered

	off bool // CLIENT REPLY OFF
}

// ReplyMode is which replies a client wants.
type ReplyMode int

// The modes of CLIENT REPLY.
const (
	RepliesOn ReplyMode = iota
	RepliesOff
	RepliesSkip // not that of the next command
)

// SetReplies has the client get those replies from now on.
func (c *Client) SetReplies(m ReplyMode) {
	r := &c.Replies
	if m == RepliesSkip {
		r.Skip = !r.off
		return
	}
	c.Flush()
	r.off = m == RepliesOff
	r.Silent = r.off
}

// WithoutReply runs the command after CLIENT REPLY SKIP. Earlier replies have been gathered, and what run gathers is
// dropped.
func (c *Client) WithoutReply(run func()) {
	c.Flush()
	r := &c.Replies
	r.Silent, r.Skip = true, false
	run()
	if r.Silent { // the command may have been CLIENT REPLY ON
		r.Silent = r.off
	}
}

// ResetReplies makes replies wanted again, for RESET. The reply to RESET itself stays unwanted if SKIP came before it.
func (c *Client) ResetReplies() {
	c.Flush()
	r := &c.Replies
	r.Silent = r.Silent && !r.off
	r.off, r.Skip = false, false
}
