package session

import (
	"bytes"
	"strconv"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// reply is one reply of Redis' taken apart, for the few that are added to. Data replies are never parsed.
type reply struct {
	kind  byte
	raw   []byte  // all of it
	text  []byte  // of strings, errors and numbers
	elems []reply // of arrays, maps (keys and values in turn), sets and pushes
	null  bool
}

// parseReply reads one whole reply; what came from a pipe is well-formed and of bounded depth.
func parseReply(b []byte) (reply, bool) {
	r, _, ok := cutReply(b)
	return r, ok
}

func cutReply(b []byte) (r reply, rest []byte, ok bool) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 {
		return r, nil, false
	}
	r.kind, r.text = b[0], b[1:end]
	rest = b[end+2:]
	switch r.kind {
	case '$', '=', '!', '*', '~', '>', '%':
	default:
		r.raw = b[:end+2]
		r.null = r.kind == '_'
		return r, rest, true
	}
	n, err := strconv.Atoi(string(r.text))
	if err != nil {
		return r, nil, false
	}
	if n < 0 {
		r.null, r.raw = true, b[:end+2]
		return r, rest, true
	}
	if r.kind == '$' || r.kind == '=' || r.kind == '!' {
		if len(rest) < n+2 {
			return r, nil, false
		}
		r.text, r.raw = rest[:n], b[:end+2+n+2]
		if r.kind == '=' && n >= 4 {
			r.text = r.text[4:]
		}
		return r, rest[n+2:], true
	}
	if r.kind == '%' {
		n *= 2
	}
	r.text = nil
	for range n {
		var e reply
		if e, rest, ok = cutReply(rest); !ok {
			return r, nil, false
		}
		r.elems = append(r.elems, e)
	}
	r.raw = b[:len(b)-len(rest)]
	return r, rest, true
}

// isList says whether the reply is an array or what RESP3 makes of one.
func (r *reply) isList() bool {
	return r.elems != nil || r.kind == '*' || r.kind == '~' || r.kind == '%'
}

// appendList appends elements, each a whole frame, as an array.
func appendList(out []byte, elems [][]byte) []byte {
	out = resp.AppendArray(out, len(elems))
	for _, e := range elems {
		out = append(out, e...)
	}
	return out
}
