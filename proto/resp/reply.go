package resp

import (
	"bytes"
	"iter"
	"strconv"
	"strings"
)

// aggregates and texts are the kinds whose first line is a number: of elements, and of bytes.
const (
	aggregates = "*~>%"
	texts      = "$=!"
)

// Frame is a frame that lies in memory, without its elements, or what has come of it.
type Frame struct {
	Kind  byte
	Text  []byte // of a string, an error or a number: all of it, or what has come
	N     int    // bytes of a text; elements of an aggregate, of a map keys and values; -1: a null
	Whole bool   // the frame has come, or of an aggregate its first line
}

// List says whether the frame is an array or what RESP3 makes of one.
func (f *Frame) List() bool { return strings.IndexByte(aggregates, f.Kind) >= 0 }

// Next returns the frame at the start of b, and what is behind it: for an aggregate that is its first element. Nothing
// is copied. ok is false if the frame's first line has not come, or is none.
func Next(b []byte) (f Frame, rest []byte, ok bool) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 {
		return f, nil, false
	}
	line, rest := b[1:end], b[end+2:]
	f = Frame{Kind: b[0], Text: line, N: len(line), Whole: true}
	text := strings.IndexByte(texts, f.Kind) >= 0
	switch {
	case f.Kind == '_':
		f.N = -1
		return f, rest, true
	case !text && !f.List():
		return f, rest, true
	}
	n, err := strconv.Atoi(string(line))
	if err != nil {
		return f, nil, false
	}
	switch f.N = n; {
	case n < 0:
		f.N = -1
	case text && len(rest) < n+2:
		f.Text, f.Whole, rest = rest[:min(n, len(rest))], false, nil
	case text:
		f.Text, rest = rest[:n], rest[n+2:]
	default:
		f.Text = nil
		if f.Kind == '%' {
			f.N *= 2
		}
	}
	return f, rest, true
}

// Element is one of the first elements of an aggregate, none of which is an aggregate, or what has come of it; i counts
// from 0. ok is false if nothing of it has come, or there is none.
func Element(b []byte, i int) (e Frame, ok bool) {
	f, b, ok := Next(b)
	if f.List() && i < f.N {
		for ; ok && i >= 0; i-- {
			e, b, ok = Next(b)
		}
		return e, ok
	}
	return e, false
}

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
	f, rest, _ := Next(b)
	if !f.Whole {
		return r, nil, false
	}
	r = Reply{Kind: f.Kind, Text: f.Text, Null: f.N < 0}
	if f.List() {
		for range f.N {
			var e Reply
			if e, rest, ok = cutReply(rest); !ok {
				return r, nil, false
			}
			r.Elems = append(r.Elems, e)
		}
	}
	if f.Kind == '=' {
		r.Text = f.Text[min(len(f.Text), len("txt:")):]
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

// Open returns how many elements a whole reply has, of a map keys and values, and their bytes. ok is false for what is
// no array, nor what RESP3 makes of one; n is -1 for a null.
func Open(reply []byte) (n int, body []byte, ok bool) {
	f, body, ok := Next(reply)
	if !ok || !f.List() {
		return 0, nil, false
	}
	return f.N, body, true
}

// Cut returns the first of the replies in b, and the others; none is copied. There is none if b is empty or broken.
func Cut(b []byte) (first, rest []byte) {
	var scan Scanner
	n, done, _ := scan.Scan(b)
	if !done {
		return nil, nil
	}
	return b[:n], b[n:]
}

// Elements goes over the elements of a reply. However many there are, they take no memory besides the reply's.
func Elements(reply []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		_, body, _ := Open(reply)
		for e, rest := Cut(body); len(e) > 0; e, rest = Cut(rest) {
			if !yield(e) {
				return
			}
		}
	}
}

// IsList says whether the reply is an array or what RESP3 makes of one.
func (r *Reply) IsList() bool { return strings.IndexByte(aggregates, r.Kind) >= 0 }

// ErrorLine tells an error reply, and gives its line.
func ErrorLine(reply []byte) (line string, bad bool) {
	f, _, _ := Next(reply)
	if f.Kind != '-' {
		return "", false
	}
	return string(f.Text), true
}

// Int is the number in a reply; 0 if it is none.
func (r Reply) Int() int {
	n, _ := strconv.Atoi(string(r.Text))
	return n
}
