package checked

import (
	"bytes"
	"errors"
	"strconv"
)

const (
	// maxBytes bounds a reply. Redis lets no value be longer than 512 MiB, and whoever may write to a lock's key can have one there, of which
	// the connection that all share must not end.
	maxBytes = 513 << 20
	// maxElements bounds the elements of a reply, those of aggregates in it included: rueidis takes 40 bytes for each before it has come.
	maxElements = 1 << 18
	// maxDepth is how deep aggregates may be nested, since rueidis calls itself for each.
	maxDepth = 32
	// maxNumber is the longest number of 64 bits, its sign included.
	maxNumber = 20
	// shortText is how much is kept of a text: more than the longest word that is looked for, or number, and most redirects.
	shortText = 64
)

var (
	errType     = errors.New("a reply of a type that Redis does not send")
	errNumber   = errors.New("a reply with an invalid number")
	errEnd      = errors.New("a reply that does not end in CR LF")
	errPush     = errors.New("a message inside a reply")
	errBytes    = errors.New("a reply of too many bytes")
	errElements = errors.New("a reply of too many elements")
	errDepth    = errors.New("a reply nested too deep")
)

// text is the beginning of a text, and its length.
type text struct {
	start [shortText]byte
	n     int64
}

func (t *text) add(p []byte) {
	if t.n < shortText {
		copy(t.start[t.n:], p)
	}
	t.n += int64(len(p))
}

// is says whether the text is that word, which is shorter than shortText.
func (t *text) is(word string) bool {
	return t.n == int64(len(word)) && string(t.start[:t.n]) == word
}

// frame is one reply, or message, that comes in pieces of any size. Nothing of it is kept but what its reader needs to know. The zero value
// stands before a reply.
type frame struct {
	kind  byte  // its first byte
	count int64 // of its elements, if it is an aggregate
	text  text  // its text or, if it is an aggregate, that of its first element

	size, elements int64
	typ            byte  // of the line that is coming; 0: none
	line           text  // of that line without its type
	cr             bool  // the line's last byte is a CR
	body           int64 // what is left of a body, its CR LF included
	named          bool  // text is set, or never will be
	depth          int   // of aggregates around what is coming
	left           [maxDepth]int64
}

// reset stands before the next reply.
func (f *frame) reset() { *f = frame{} }

// take looks at the next bytes. n of them belong to the reply; done says that it ends there.
func (f *frame) take(p []byte) (n int, done bool, err error) {
	for n < len(p) && !done && err == nil {
		var k int
		if f.body > 0 {
			k, done, err = f.takeBody(p[n:])
		} else {
			k, done, err = f.takeLine(p[n:])
		}
		n += k
		if f.size += int64(k); f.size > maxBytes {
			return n, false, errBytes
		}
	}
	return n, done, err
}

// takeBody takes bytes of a body, and of the CR LF behind it.
func (f *frame) takeBody(p []byte) (n int, done bool, err error) {
	if f.body > 2 {
		n = int(min(f.body-2, int64(len(p))))
		if !f.named {
			f.text.add(p[:n])
		}
		f.body -= int64(n)
		return n, false, nil
	}
	if p[0] != "\n\r"[f.body-1] {
		return 0, false, errEnd
	}
	if f.body--; f.body > 0 {
		return 1, false, nil
	}
	f.named = true
	return 1, f.finish(), nil
}

// takeLine takes bytes of a line. Its end is the first LF, as it is to rueidis.
func (f *frame) takeLine(p []byte) (n int, done bool, err error) {
	if f.typ == 0 {
		if f.typ = p[0]; f.size == 0 {
			f.kind = p[0]
		}
		f.line, f.cr = text{}, false
		return 1, false, nil
	}
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		f.line.add(p)
		f.cr = p[len(p)-1] == '\r'
		return len(p), false, f.judgeBegun()
	}
	if end > 0 {
		f.line.add(p[:end])
		f.cr = p[end-1] == '\r'
	}
	if !f.cr {
		return 0, false, errEnd
	}
	f.line.n-- // the CR
	done, err = f.endLine()
	return end + 1, done, err
}

// judgeBegun ends a line that has no end yet, and cannot become one. rueidis does not wait for the end of "#" and "_": it counts.
func (f *frame) judgeBegun() error {
	longest := int64(maxNumber + 1) // with the CR
	switch f.typ {
	case '+', '-', ',', '(':
		return nil
	case '#', '_':
		longest = 0
		if f.typ == '#' && (f.line.start[0] == 't' || f.line.start[0] == 'f') {
			longest = 1
		}
		if f.cr {
			longest++
		}
	case ':', '$', '!', '=', '*', '~', '%', '>':
	default:
		return errType
	}
	if f.line.n > longest {
		return errNumber
	}
	return nil
}

// endLine judges a whole line, and says whether the reply ends with it.
func (f *frame) endLine() (done bool, err error) {
	typ := f.typ
	f.typ = 0
	switch typ {
	case '+', '-', ',', '(':
		if !f.named {
			f.text = f.line
		}
		return f.scalar()
	case '#':
		if !f.line.is("t") && !f.line.is("f") {
			return false, errNumber
		}
		return f.scalar()
	case '_':
		if !f.line.is("") {
			return false, errNumber
		}
		return f.scalar()
	case ':', '$', '!', '=', '*', '~', '%', '>':
	default:
		return false, errType
	}
	if (typ == '$' || typ == '*') && f.line.is("-1") {
		return f.scalar()
	}
	n, ok := f.line.number()
	switch {
	case !ok || n < 0 && typ != ':':
		return false, errNumber
	case typ == ':':
		return f.scalar()
	case typ == '$', typ == '!', typ == '=':
		if n > maxBytes {
			return false, errBytes
		}
		f.body = n + 2
		return false, nil
	}
	return f.aggregate(typ, n)
}

// scalar ends what is no aggregate.
func (f *frame) scalar() (done bool, err error) {
	f.named = true
	return f.finish(), nil
}

// aggregate begins an aggregate of n elements, or of n pairs.
func (f *frame) aggregate(typ byte, n int64) (done bool, err error) {
	if n > maxElements {
		return false, errElements
	}
	if typ == '%' {
		n *= 2
	}
	switch f.elements += n; {
	case typ == '>' && f.depth > 0:
		return false, errPush
	case f.elements > maxElements:
		return false, errElements
	case f.depth == maxDepth:
		return false, errDepth
	}
	if f.depth == 0 {
		f.count = n
	} else {
		f.named = true // the first element is an aggregate
	}
	if n == 0 {
		return f.finish(), nil
	}
	f.left[f.depth] = n
	f.depth++
	return false, nil
}

// finish counts something whole in what is around it, and says whether the reply is whole.
func (f *frame) finish() bool {
	for f.depth > 0 {
		if f.left[f.depth-1]--; f.left[f.depth-1] > 0 {
			return false
		}
		f.depth--
	}
	return true
}

// number reads a whole number of 64 bits.
func (t *text) number() (n int64, ok bool) {
	if t.n > maxNumber {
		return 0, false
	}
	n, err := strconv.ParseInt(string(t.start[:t.n]), 10, 64)
	return n, err == nil && t.start[0] != '+'
}
