package resp

import (
	"bytes"
	"strconv"
)

// Reply is one reply of Redis' taken apart, for the few that are added to. Data replies are never parsed.
type Reply struct {
	Kind  byte
	Raw   []byte  // all of it
	Text  []byte  // of strings, errors and numbers
	Elems []Reply // of arrays, maps (keys and values in turn), sets and pushes
	Null  bool
}

// ParseReply reads one whole reply, which it does not copy; ok is false if it is not whole. What came from a pipe is
// well-formed and of bounded depth.
func ParseReply(b []byte) (r Reply, ok bool) {
	r, _, ok = cutReply(b)
	return r, ok
}

func cutReply(b []byte) (r Reply, rest []byte, ok bool) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 {
		return r, nil, false
	}
	r.Kind, r.Text = b[0], b[1:end]
	rest = b[end+2:]
	switch r.Kind {
	case '$', '=', '!', '*', '~', '>', '%':
	default:
		r.Raw = b[:end+2]
		r.Null = r.Kind == '_'
		return r, rest, true
	}
	n, err := strconv.Atoi(string(r.Text))
	if err != nil {
		return r, nil, false
	}
	if n < 0 {
		r.Null, r.Raw = true, b[:end+2]
		return r, rest, true
	}
	if r.Kind == '$' || r.Kind == '=' || r.Kind == '!' {
		if len(rest) < n+2 {
			return r, nil, false
		}
		r.Text, r.Raw = rest[:n], b[:end+2+n+2]
		if r.Kind == '=' && n >= 4 {
			r.Text = r.Text[4:]
		}
		return r, rest[n+2:], true
	}
	if r.Kind == '%' {
		n *= 2
	}
	r.Text = nil
	for range n {
		var e Reply
		if e, rest, ok = cutReply(rest); !ok {
			return r, nil, false
		}
		r.Elems = append(r.Elems, e)
	}
	r.Raw = b[:len(b)-len(rest)]
	return r, rest, true
}

// IsList says whether the reply is an array or what RESP3 makes of one.
func (r *Reply) IsList() bool {
	return r.Elems != nil || r.Kind == '*' || r.Kind == '~' || r.Kind == '%'
}

// ErrorLine tells an error reply, and gives its line.
func ErrorLine(reply []byte) (line string, bad bool) {
	if len(reply) < 3 || reply[0] != '-' {
		return "", false
	}
	return string(reply[1 : len(reply)-2]), true
}

// Int is the number in a reply; 0 if it is none.
func (r Reply) Int() int {
	n, _ := strconv.Atoi(string(r.Text))
	return n
}
