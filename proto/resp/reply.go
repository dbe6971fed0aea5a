package resp

import (
	"bytes"
	"iter"
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

// Outline is ParseReply but for the elements, over which Elements goes.
func Outline(b []byte) (r Reply, ok bool) {
	if n, _, list := Open(b); list {
		return Reply{Kind: b[0], Raw: b, Null: n < 0}, true
	}
	return ParseReply(b)
}

// Open returns how many elements a whole reply has, of a map keys and values, and their bytes. ok is false for what is no array, nor what RESP3
// makes of one; n is -1 for a null.
func Open(reply []byte) (n int, body []byte, ok bool) {
	end := bytes.Index(reply, []byte("\r\n"))
	if end < 1 || !bytes.ContainsRune([]byte("*~>%"), rune(reply[0])) {
		return 0, nil, false
	}
	n, err := strconv.Atoi(string(reply[1:end]))
	if reply[0] == '%' {
		n *= 2
	}
	return n, reply[end+2:], err == nil
}

// Cut returns the first of the replies in b, and the others; none is copied. There is none if b is empty or broken.
func Cut(b []byte) (first, rest []byte) {
	var scan Scanner
	n, done, err := scan.Scan(b)
	if err != nil || !done {
		return nil, nil
	}
	return b[:n], b[n:]
}

// Elements goes over the elements of a reply. However many there are, they take no memory besides the reply's.
func Elements(reply []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		_, body, _ := Open(reply)
		for e, rest := Cut(body); len(e) > 0 && yield(e); e, rest = Cut(rest) {
		}
	}
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
