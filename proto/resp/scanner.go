package resp

import (
	"bytes"
	"errors"
)

const (
	// maxDepth is how deep aggregates may be nested in a reply.
	maxDepth = 10000
	// maxDigits keeps a length, and twice a length, within 64 bits.
	maxDigits = 18
)

// Errors of [Scanner.Scan]. The connection the bytes came from cannot be used
// any more.
var (
	ErrFrameType   = errors.New("reply of unknown type")
	ErrFrameLength = errors.New("reply with an invalid length")
	ErrFrameEnd    = errors.New("reply does not end in CR LF")
	ErrFrameDepth  = errors.New("reply nested too deep")
)

// scan is where in a reply frame the next byte stands.
type scan uint8

const (
	scanType   scan = iota // at a type byte
	scanLine               // in a line of text, up to its CR LF
	scanNumber             // in the line of a length
	scanNull               // behind "$-" or "*-"
	scanNumLF              // behind the CR of a length
	scanBody               // in a body
	scanEnd                // behind a body
	scanBroken             // behind an error
)

// level is an aggregate whose elements are being scanned.
type level struct {
	left  int64
	aside bool // it is not counted in what is around it: an attribute of what follows, or a message
}

// A Scanner finds the ends of reply frames in a stream of bytes that comes in
// pieces of any size: RESP2 and RESP3, all types but the streamed ones, which
// Redis does not send. It keeps no bytes and allocates nothing; bodies are
// skipped by count. Attributes belong to the frame behind them. A push within another frame is not one of its elements,
// unless it confirms a subscription: Redis before 7.2 writes a message that a command brings to its own connection into
// the reply that is being written, as to PUBLISH within EXEC, and does not count it. Each confirmation is counted, of
// which Redis counts the first of a command.
//
// It checks what it needs to stay in step, types, lengths and line ends, not
// whether the text of a number is one. A text line has no bound, since it is
// not kept.
//
// The zero value stands before a frame.
type Scanner struct {
	kind   byte // of the outermost frame
	typ    byte // of the present one
	at     scan
	cr     bool   // the last byte of the line was a CR
	want   string // what must come in scanNull, scanNumLF and scanEnd
	digits uint8
	depth  int
	n      int64 // the length so far, or what is left of the body
	err    error
	levels []level // those around the present frame, depth of them
	naming bool    // the first element of a push within another frame is to come, or coming
	name   shortName
}

// shortName is the beginning of a text, longer than any that is looked for.
type shortName struct {
	text [16]byte
	n    int
}

func (w *shortName) addText(p []byte) { w.n += copy(w.text[w.n:], p) }

// confirms says whether a push of that name confirms a subscription, or the end of one.
func (w *shortName) confirms() bool {
	switch string(w.text[:w.n]) {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe":
		return true
	}
	return false
}

// Kind returns the first byte of the frame that is being scanned or, between
// two frames, of the last one; 0 before the first. It is '|' for as long as
// only a frame's attributes have come.
func (s *Scanner) Kind() byte { return s.kind }

// Scan looks at the next bytes of the stream. The first n bytes of p belong to
// the current frame; done says that it ends there. When it does not, n is
// len(p), and the next Scan goes on. An error is final.
func (s *Scanner) Scan(p []byte) (n int, done bool, err error) {
	for n < len(p) {
		k, complete := 0, true
		if s.at == scanType {
			if s.depth == 0 {
				s.kind = p[n]
			}
			if !s.naming {
				k = scalar(p[n:])
			}
		}
		if k == 0 {
			if k, complete, err = s.goOn(p[n:]); err != nil {
				s.at, s.err = scanBroken, err
				return 0, false, err
			}
		}
		if n += k; complete && s.finish() {
			return n, true, nil
		}
	}
	return n, false, nil
}

// scalar returns the length of the frame that p begins with when it is a text
// line or a bulk string and all of it is in p; otherwise 0. It is the fast way
// past begin and goOn, which judge whatever it does not take.
func scalar(p []byte) int {
	switch p[0] {
	case '+', '-', ':', ',', '#', '_', '(':
		end := bytes.IndexByte(p, '\n')
		if end > 1 && p[end-1] == '\r' {
			return end + 1
		}
	case '$':
		if len(p) >= 5 && string(p[1:5]) == "-1\r\n" {
			return 5
		}
		if n, body := shortLength(p, 0, '$'); n >= 0 && endsLine(p, body+n) {
			return body + n + 2
		}
	}
	return 0
}

// beginFrame takes the type byte of a frame.
func (s *Scanner) beginFrame(typ byte) error {
	s.typ = typ
	switch typ {
	case '+', '-', ':', ',', '#', '_', '(':
		s.at, s.cr = scanLine, false
	case '$', '=', '!', '*', '~', '>', '%', '|':
		s.at, s.n, s.digits = scanNumber, 0, 0
	default:
		return ErrFrameType
	}
	return nil
}

// goOn takes bytes of a frame, as many as belong to one state.
// complete says that it ends there, as an element of what is around it.
func (s *Scanner) goOn(p []byte) (n int, complete bool, err error) {
	switch s.at {
	case scanType:
		return 1, false, s.beginFrame(p[0])
	case scanLine:
		n, complete = s.line(p)
		return n, complete, nil
	case scanNumber:
		n, err = s.number(p)
		return n, false, err
	case scanBody:
		k := min(s.n, int64(len(p)))
		if s.naming && s.typ == '$' {
			s.name.addText(p[:k])
		}
		if s.n -= k; s.n == 0 {
			s.expect(scanEnd, "\r\n")
		}
		return int(k), false, nil
	case scanBroken:
		return 0, false, s.err
	default: // scanNull, scanNumLF, scanEnd
		complete, err = s.wanted(p[0])
		return 1, complete, err
	}
}

// expect has the next bytes be those.
func (s *Scanner) expect(at scan, want string) { s.at, s.want = at, want }

// wanted takes one of the bytes that must come.
func (s *Scanner) wanted(got byte) (complete bool, err error) {
	if got != s.want[0] {
		if s.at == scanEnd {
			return false, ErrFrameEnd
		}
		return false, ErrFrameLength
	}
	if s.want = s.want[1:]; s.want != "" {
		return false, nil
	}
	if s.at == scanNumLF {
		return s.length()
	}
	return true, nil
}

// line takes text up to and with its CR LF. A CR or LF alone is text.
func (s *Scanner) line(p []byte) (n int, complete bool) {
	for n < len(p) {
		k := bytes.IndexByte(p[n:], '\n')
		if k < 0 {
			s.cr = p[len(p)-1] == '\r'
			return len(p), false
		}
		if n += k; n > 0 {
			s.cr = p[n-1] == '\r'
		}
		n++
		if s.cr {
			return n, true
		}
	}
	s.cr = false // the last byte was an LF
	return n, false
}

// number takes the digits of a length and the CR behind them.
func (s *Scanner) number(p []byte) (n int, err error) {
	for i, c := range p {
		switch d := c - '0'; {
		case d <= 9 && s.digits < maxDigits:
			s.n = s.n*10 + int64(d)
			s.digits++
		case c == '\r' && s.digits > 0:
			s.expect(scanNumLF, "\n")
			return i + 1, nil
		case c == '-' && s.digits == 0:
			if s.typ != '$' && s.typ != '*' {
				return i, ErrFrameLength
			}
			s.expect(scanNull, "1\r\n")
			return i + 1, nil
		default:
			return i, ErrFrameLength
		}
	}
	return len(p), nil
}

// length ends the line of a length.
func (s *Scanner) length() (complete bool, err error) {
	switch s.typ {
	case '$', '=', '!':
		if s.at = scanBody; s.n == 0 {
			s.expect(scanEnd, "\r\n")
		}
		return false, nil
	case '%', '|':
		s.n *= 2
	}
	within := s.typ == '>' && s.depth > 0
	aside := within || s.typ == '|'
	if s.n == 0 {
		if aside {
			s.at, s.naming = scanType, false // what is counted follows
		}
		return !aside, nil
	}
	if s.depth == maxDepth {
		return false, ErrFrameDepth
	}
	s.levels = append(s.levels[:s.depth], level{s.n, aside})
	s.depth++
	s.naming, s.name = within, shortName{}
	s.at = scanType
	return false, nil
}

// finish counts a complete frame in what is around it, and reports whether the
// outermost one is complete.
func (s *Scanner) finish() bool {
	s.at = scanType
	if s.naming {
		s.naming = false
		s.levels[s.depth-1].aside = !s.name.confirms()
	}
	for s.depth > 0 {
		l := &s.levels[s.depth-1]
		if l.left--; l.left > 0 {
			return false
		}
		s.depth--
		if l.aside {
			return false // what is counted follows
		}
	}
	return true
}
