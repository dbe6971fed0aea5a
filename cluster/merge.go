package cluster

import (
	"bytes"
	"slices"

	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// badReply is the answer when nodes' replies do not fit together, which no Redis gives.
const badReply = "ERR the nodes' replies cannot be merged"

// finish makes Reply and Err of what the units got. A part that failed fails the whole: the first error in the order
// of the keys, or of the nodes, is the answer, but a part whose outcome is unknown goes before any other. The other
// parts of a split write have been done then, which is the same as when their client had sent them one by one. A replica
// that can run nothing at the moment is left out, like one that is out of reach. While replies are merged they are held
// twice, as the nodes' and as the client's: hold is asked whether they may be.
func (p *Plan) finish(hold func(n int) bool) {
	if p.done {
		return
	}
	p.done = true
	if !p.merge {
		p.hand(&p.units[0])
		return
	}
	if size := p.gathered() + placeBytes*len(p.cmd.Keys); size > freeReplies && !hold(size) {
		p.Err = ErrTooMuch
		return
	}
	var replies []resp.Reply
	var left error // of a node that was left out
	f := p.cmd.Facts
	for i := range p.units {
		u := &p.units[i]
		switch {
		case u.err != nil && u.optional && (f.Partial || !upstream.IsLost(u.err) && !upstream.IsFull(u.err)):
			left = u.err
		case u.err != nil:
			if p.Err == nil || upstream.IsLost(u.err) && !upstream.IsLost(p.Err) {
				p.Err = u.err
			}
		case u.optional && !f.Partial && runsNothing(u.reply):
		default:
			v, ok := resp.Outline(u.join())
			if !ok {
				v = resp.Reply{Kind: '-', Raw: resp.AppendError(nil, badReply)}
			}
			replies = append(replies, v)
		}
	}
	if len(replies) == 0 && p.Err == nil {
		p.Err = left
	}
	if p.Err != nil && !(f.Response == OneSucceeded && slices.ContainsFunc(replies, succeeded)) {
		return
	}
	p.Err = nil
	p.Reply = p.join(replies)
}

// gathered is how many bytes of replies the units have.
func (p *Plan) gathered() (size int) {
	for i := range p.units {
		size += len(p.units[i].reply)
		for _, piece := range p.units[i].pieces {
			size += len(piece)
		}
	}
	return size
}

func succeeded(r resp.Reply) bool { return !isError(r) }

// join makes one reply of several.
func (p *Plan) join(replies []resp.Reply) []byte {
	if len(replies) == 0 {
		return resp.AppendError(nil, badReply)
	}
	f := p.cmd.Facts
	if f.Response == Each {
		out := resp.AppendArray(nil, len(replies))
		for _, v := range replies {
			out = append(out, v.Raw...)
		}
		return out
	}
	for _, v := range replies {
		if isError(v) != (f.Response == OneSucceeded) {
			return v.Raw // the first error, or the first success
		}
	}
	switch f.Response {
	case OneSucceeded:
		return telling(replies)
	case AllSucceeded:
		return replies[0].Raw
	case Sum, Min, Max, LogicalAnd, LogicalOr:
		return aggregate(f.Response, replies)
	}
	switch {
	case f.Name == "mget":
		return p.inOrder(replies)
	case replies[0].Kind == '*' || replies[0].Kind == '~':
		return concat(replies)
	}
	return one(replies)
}

// telling returns the error of a node that had something to kill, UNKILLABLE or BUSY with the other kind of script, or
// else any error.
func telling(refusals []resp.Reply) []byte {
	for _, v := range refusals {
		if !bytes.HasPrefix(v.Raw, []byte("-NOTBUSY ")) {
			return v.Raw
		}
	}
	return refusals[0].Raw
}

// placeBytes is what inOrder takes for each key.
const placeBytes = 4

// inOrder puts the elements of split replies where their keys stood. They are copied as they came.
func (p *Plan) inOrder(replies []resp.Reply) []byte {
	unitOf := make([]int32, len(p.cmd.Keys))
	left := make([][]byte, len(replies))
	size := 16
	for i, v := range replies {
		n, body, _ := resp.Open(v.Raw)
		if n != len(p.units[i].keys) {
			return resp.AppendError(nil, badReply)
		}
		for _, k := range p.units[i].keys {
			unitOf[k] = int32(i)
		}
		left[i] = body
		size += len(v.Raw)
	}
	out := resp.AppendArray(make([]byte, 0, size), len(unitOf))
	for _, i := range unitOf { // a unit's keys are in their order
		var e []byte
		e, left[i] = resp.Cut(left[i])
		out = append(out, e...)
	}
	return out
}

// concat joins arrays, or sets, in the order of the nodes.
func concat(replies []resp.Reply) []byte {
	n, size := 0, 16
	for _, v := range replies {
		has, _, _ := resp.Open(v.Raw)
		n += max(has, 0)
		size += len(v.Raw)
	}
	out := resp.AppendArray(make([]byte, 0, size), n)
	out[0] = replies[0].Kind
	for _, v := range replies {
		_, body, _ := resp.Open(v.Raw)
		out = append(out, body...)
	}
	return out
}

// one returns any of the replies, but a null only if all are null: for RANDOMKEY.
func one(replies []resp.Reply) []byte {
	at := jitter.N(len(replies))
	for i := range replies {
		if v := replies[(at+i)%len(replies)]; !v.Null {
			return v.Raw
		}
	}
	return replies[at].Raw
}

// aggregate combines integers, or the integers of arrays one by one. What stands between them, as the names in PUBSUB NUMSUB, is the same for
// all.
func aggregate(how Response, replies []resp.Reply) []byte {
	left, column := make([][]byte, len(replies)), make([][]byte, len(replies))
	length := 0
	for i, v := range replies {
		n, body, array := resp.Open(v.Raw)
		if !array {
			n, body = 1, v.Raw
		}
		if i == 0 {
			length = n
		}
		if n != length {
			return resp.AppendError(nil, badReply)
		}
		left[i] = body
	}
	var out []byte
	if replies[0].Kind != ':' {
		out = resp.AppendArray(nil, length)
	}
	for range length {
		for i := range left {
			column[i], left[i] = resp.Cut(left[i])
		}
		if out = combine(out, how, column); out[0] == '-' {
			return out
		}
	}
	return out
}

// combine appends what the nodes' answers to one thing make together; if they do not fit it returns the error instead.
func combine(out []byte, how Response, answers [][]byte) []byte {
	first, _ := resp.Outline(answers[0])
	if first.Kind == '$' {
		return append(out, first.Raw...)
	}
	total, ok := integerOf(first)
	for _, raw := range answers[1:] {
		v, _ := resp.Outline(raw)
		n, is := integerOf(v)
		total, ok = reckon(how, total, n), ok && is
	}
	if !ok {
		return resp.AppendError(nil, badReply)
	}
	return resp.AppendInt(out, total)
}

func reckon(how Response, a, b int64) int64 {
	switch how {
	case Min:
		return min(a, b)
	case Max:
		return max(a, b)
	case LogicalAnd:
		return truth(a != 0 && b != 0)
	case LogicalOr:
		return truth(a != 0 || b != 0)
	}
	return a + b
}

func truth(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
