package cluster

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// badReply is the answer when nodes' replies do not fit together, which no Redis gives.
const badReply = "ERR the nodes' replies cannot be merged"

// finish makes Reply and Err of what the units got. A part that failed fails the whole: the first error in the order
// of the keys, or of the nodes, is the answer, but a part whose outcome is unknown goes before any other. The other
// parts of a split write have been done then, which is the same as when their client had sent them one by one. While
// replies are merged they are held twice, as the nodes' and as the client's: hold is asked whether they may be.
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
	p.Err = nil
	for i := range p.units {
		u := &p.units[i]
		switch {
		case u.leftOut():
			left = cmp.Or(left, u.err)
		case u.err == nil:
			replies = append(replies, u.outline())
		case p.Err == nil, upstream.IsLost(u.err) && !upstream.IsLost(p.Err):
			p.Err = u.err
		}
	}
	if len(replies) == 0 {
		p.Err = cmp.Or(p.Err, left)
	}
	if p.Err != nil && !p.succeededOnce(replies) {
		return
	}
	p.Err = nil
	p.Reply = p.join(replies)
}

// leftOut says that the whole does not need the unit: of a Partial command a node that did not answer, else a
// replica that is out of reach, or can run nothing at the moment.
func (u *unit) leftOut() bool {
	switch {
	case !u.optional:
		return false
	case u.plan.cmd.Facts.Partial:
		return u.err != nil
	case u.err == nil:
		return readRefusal(u.reply).kind == runsNothing
	}
	return !upstream.IsLost(u.err) && !upstream.IsFull(u.err)
}

// outline is the unit's reply.
func (u *unit) outline() resp.Reply {
	v, ok := resp.Outline(u.join())
	if !ok {
		return resp.Reply{Kind: '-', Raw: resp.AppendError(nil, badReply)}
	}
	return v
}

// succeededOnce says that the command needs no more than one reply that is no error, and has it.
func (p *Plan) succeededOnce(replies []resp.Reply) bool {
	return p.cmd.Facts.Response == OneSucceeded && slices.ContainsFunc(replies, succeeded)
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

// isError says that the reply is one.
func isError(r resp.Reply) bool { return r.Kind == '-' || r.Kind == '!' }

func succeeded(r resp.Reply) bool { return !isError(r) }

// joins make one reply of several. Where they are not about errors there are none.
var joins = [...]func(p *Plan, replies []resp.Reply) []byte{
	NoPolicy:     (*Plan).joinAny,
	OneSucceeded: func(_ *Plan, replies []resp.Reply) []byte { return telling(replies) },
	AllSucceeded: func(_ *Plan, replies []resp.Reply) []byte { return replies[0].Raw },
	Sum:          reckoned(func(a, b int64) int64 { return a + b }),
	Min:          reckoned(func(a, b int64) int64 { return min(a, b) }),
	Max:          reckoned(func(a, b int64) int64 { return max(a, b) }),
	LogicalAnd:   reckoned(func(a, b int64) int64 { return min(truth(a), truth(b)) }),
	LogicalOr:    reckoned(func(a, b int64) int64 { return max(truth(a), truth(b)) }),
	Each:         func(_ *Plan, replies []resp.Reply) []byte { return array(replies) },
}

// join makes one reply of several: mostly the first error, if there is one.
func (p *Plan) join(replies []resp.Reply) []byte {
	how := p.cmd.Facts.Response
	if len(replies) == 0 {
		return resp.AppendError(nil, badReply)
	}
	decides := isError
	switch how {
	case Each:
		return joins[how](p, replies)
	case OneSucceeded:
		decides = succeeded
	}
	if at := slices.IndexFunc(replies, decides); at >= 0 {
		return replies[at].Raw
	}
	return joins[how](p, replies)
}

// joinAny is for commands without a policy: arrays, and sets, become one; of other replies any will do.
func (p *Plan) joinAny(replies []resp.Reply) []byte {
	switch kind := replies[0].Kind; {
	case p.kind == byCursor:
		return p.scanReply(replies[0])
	case p.cmd.Facts.Name == "mget":
		return p.inOrder(replies)
	case kind == '*', kind == '~':
		return concat(replies)
	}
	return one(replies)
}

// array has the replies as they are.
func array(replies []resp.Reply) []byte {
	out := resp.AppendArray(nil, len(replies))
	for _, v := range replies {
		out = append(out, v.Raw...)
	}
	return out
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

// reckoned combines integers two by two, or the integers of arrays one by one. What stands between them, as the
// names in PUBSUB NUMSUB, is the same for all.
func reckoned(two func(a, b int64) int64) func(*Plan, []resp.Reply) []byte {
	return func(_ *Plan, replies []resp.Reply) []byte {
		left, column := make([][]byte, len(replies)), make([][]byte, len(replies))
		lengths := make([]int, len(replies))
		for i, v := range replies {
			n, body, array := resp.Open(v.Raw)
			if !array {
				n, body = 1, v.Raw
			}
			lengths[i], left[i] = n, body
		}
		if len(slices.Compact(lengths)) > 1 {
			return resp.AppendError(nil, badReply)
		}
		var out []byte
		if replies[0].Kind != ':' {
			out = resp.AppendArray(nil, lengths[0])
		}
		for range lengths[0] {
			for i := range left {
				column[i], left[i] = resp.Cut(left[i])
			}
			one, ok := combine(two, column)
			if !ok {
				return resp.AppendError(nil, badReply)
			}
			out = append(out, one...)
		}
		return out
	}
}

// combine is what the nodes' answers to one thing make together; false: they do not fit.
func combine(two func(a, b int64) int64, answers [][]byte) ([]byte, bool) {
	if first, _ := resp.Outline(answers[0]); first.Kind == '$' {
		return first.Raw, true
	}
	numbers := make([]int64, len(answers))
	for i, raw := range answers {
		v, _ := resp.Outline(raw)
		n, is := integerOf(v)
		if !is {
			return nil, false
		}
		numbers[i] = n
	}
	total := numbers[0]
	for _, n := range numbers[1:] {
		total = two(total, n)
	}
	return resp.AppendInt(nil, total), true
}

// integerOf is the number of an integer reply, or of a string with one.
func integerOf(r resp.Reply) (int64, bool) {
	n, err := strconv.ParseInt(string(r.Text), 10, 64)
	return n, err == nil
}

func truth(n int64) int64 {
	if n == 0 {
		return 0
	}
	return 1
}
