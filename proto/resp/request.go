package resp

import (
	"bytes"
	"math"
	"strconv"
)

// state is where in a request the next byte stands.
type state uint8

const (
	atStart     state = iota // between two commands
	inCount                  // the line "*<count>", up to its CR
	afterCount               // the byte after that CR, which Redis does not look at
	inLength                 // the line "$<length>", up to its CR
	afterLength              // the byte after that CR
	inBody                   // an argument's bytes
	inBodyCR                 // the two bytes behind them, which Redis does not look at
	inBodyLF
	inInline // a line that does not begin with '*'
)

// verdict is what a run of request.step ended with.
type verdict uint8

const (
	isUnfinished verdict = iota // the bytes ended before the command did
	isCommand                   // the end of a multibulk command
	isNothing                   // the end of what Redis swallows: "*0", "*-1"
	isInline                    // the end of an inline line
)

// request walks through the bytes of one command without keeping them: it
// reads headers and skips bodies by count. Its zero value stands before a
// command. It may be left at any byte and gone on with later.
type request struct {
	state state
	stuck bool     // a NUL in the line hides its end from Redis' strchr
	text  [24]byte // the start of the header line; a longer one is no number
	line  int      // bytes seen of the line that is not at its end yet
	size  int      // bytes seen of the command in earlier steps
	args  int      // arguments still to come, the present one included
	body  int      // bytes still to come of the present argument
}

// step walks on through b. It returns how many bytes it took, all of them
// unless the command ended or is wrong, and what it met. Line ends that Redis
// would not look at are set to CR LF in b, since redcon does look.
func (q *request) step(b []byte, l *Limits) (n int, v verdict, err error) {
	for i := 0; i < len(b); {
		switch q.state {
		case atStart:
			q.state = inInline
			if b[i] == '*' {
				q.state = inCount
			}
		case inCount, inLength:
			k, err := q.header(b[i:], l.Inline)
			if err != nil {
				return i, isUnfinished, err
			}
			i += k
		case afterCount:
			b[i] = '\n'
			i++
			if v, err := q.readCount(l); v == isNothing || err != nil {
				return i, v, err
			}
		case afterLength:
			b[i] = '\n'
			i++
			if err := q.length(q.size+i, l); err != nil {
				return i, isUnfinished, err
			}
		case inBody, inBodyCR, inBodyLF:
			k, done := q.argument(b[i:])
			i += k
			if done {
				return i, isCommand, nil
			}
		case inInline:
			k, done, err := q.inline(b[i:], l.Inline)
			if err != nil {
				return i, isUnfinished, err
			}
			i += k
			if done {
				*q = request{}
				return i, isInline, nil
			}
		}
	}
	q.size += len(b)
	return len(b), isUnfinished, nil
}

// header takes b up to and with the line's CR.
func (q *request) header(b []byte, limit int) (int, error) {
	for i, c := range b {
		if c == '\r' && !q.stuck {
			q.state++ // inCount → afterCount, inLength → afterLength
			q.line++
			return i + 1, nil
		}
		if q.line == limit {
			if q.state == inCount {
				return 0, errCountTooBig
			}
			return 0, errBulkCountTooBig
		}
		if c == 0 {
			q.stuck = true
		}
		if q.line < len(q.text) {
			q.text[q.line] = c
		}
		q.line++
	}
	return len(b), nil
}

// argument takes bytes of an argument's body or the two behind it, as many as
// belong to one state. done says that they end the command.
func (q *request) argument(b []byte) (n int, done bool) {
	switch q.state {
	case inBody:
		n = min(q.body, len(b))
		if q.body -= n; q.body == 0 {
			q.state = inBodyCR
		}
		return n, false
	case inBodyCR:
		b[0] = '\r'
		q.state = inBodyLF
		return 1, false
	default:
		b[0] = '\n'
		q.state = inLength
		if q.args--; q.args > 0 {
			return 1, false
		}
		*q = request{}
		return 1, true
	}
}

// inline takes b up to and with the line's LF.
func (q *request) inline(b []byte, limit int) (n int, done bool, err error) {
	n = min(len(b), limit+1-q.line)
	if !q.stuck {
		end := bytes.IndexByte(b[:n], '\n')
		seen := b[:n]
		if end >= 0 {
			seen = b[:end]
		}
		q.stuck = bytes.IndexByte(seen, 0) >= 0
		if end >= 0 && !q.stuck {
			return end + 1, true, nil
		}
	}
	if q.line += n; q.line > limit {
		return 0, false, errInlineTooBig
	}
	return n, false, nil
}

// readCount ends the line "*<count>".
func (q *request) readCount(l *Limits) (verdict, error) {
	n, ok := q.number()
	if !ok || n > math.MaxInt32 {
		return isUnfinished, errMultibulkLength
	}
	if n <= 0 {
		*q = request{}
		return isNothing, nil
	}
	if err := l.checkArgs(n); err != nil {
		return isUnfinished, err
	}
	q.args, q.state, q.line = int(n), inLength, 0
	return isUnfinished, nil
}

// length ends the line "$<length>"; so far counts the command's bytes to here.
func (q *request) length(soFar int, l *Limits) error {
	if q.line == 1 {
		return expectedDollar('\r')
	}
	if q.text[0] != '$' {
		return expectedDollar(q.text[0])
	}
	n, ok := q.number()
	if !ok {
		return errBulkLength
	}
	if err := l.checkBulk(n); err != nil {
		return err
	}
	if n+2 > int64(l.Command-soFar) {
		return errCommandTooBig
	}
	q.body, q.state, q.line = int(n), inBody, 0
	if n == 0 {
		q.state = inBodyCR
	}
	return nil
}

// number returns the number behind the first byte of the header line.
func (q *request) number() (int64, bool) {
	end := q.line - 1 // without the CR
	if end > len(q.text) {
		return 0, false
	}
	return Integer(q.text[1:end])
}

// expectedDollar is Redis' error for an argument without its '$'.
func expectedDollar(got byte) error {
	return &ProtocolError{"expected '$', got '" + lineEnds.Replace(string([]byte{got})) + "'"}
}

// Integer is a word as Redis takes it for an integer, with string2ll: there is one way to write each number, so no
// leading zero, no plus, no "-0", and nothing beyond 64 bits.
func Integer(s []byte) (int64, bool) {
	var same [20]byte // the longest
	if len(s) > len(same) {
		return 0, false
	}
	n, err := strconv.ParseInt(string(s), 10, 64)
	if err != nil || string(strconv.AppendInt(same[:0], n, 10)) != string(s) {
		return 0, false
	}
	return n, true
}

// announced is how many bytes are still to come of the present argument and behind it, if it is the last one whose length
// is known; 0 otherwise.
func (q *request) announced() int {
	if q.state == inBody && q.args == 1 {
		return q.body + len("\r\n")
	}
	return 0
}

// wholeCommands returns how many bytes at the start of b are complete multibulk
// commands that need no correction and break no limit. It is the fast way past
// step, which judges whatever it stops at.
func wholeCommands(b []byte, l *Limits) (end int) {
	for end < len(b) {
		n := wholeCommand(b[end:], l)
		if n == 0 {
			break
		}
		end += n
	}
	return end
}

// noLimits are for commands that have been found to be within their limits before.
var noLimits = Limits{Args: math.MaxInt, Bulk: math.MaxInt, Command: math.MaxInt}

// wholeCommand is the length of the command at the start of b; 0: step is to judge it.
func wholeCommand(b []byte, l *Limits) int {
	args, i := shortLength(b, 0, '*')
	if args < 1 || args > l.Args {
		return 0
	}
	for ; args > 0; args-- {
		size, body := shortLength(b, i, '$')
		if size < 0 || size > l.Bulk {
			return 0
		}
		i = body + size + 2
		if !endsLine(b, i-2) {
			return 0
		}
	}
	if i > l.Command {
		return 0
	}
	return i
}

// CutCommand appends to words those of the multibulk command that b begins with, and returns its length; 0: there is no
// whole one, or one of which only [Reader] can judge. The words are parts of b.
func CutCommand(words [][]byte, b []byte) ([][]byte, int) {
	args, i := shortLength(b, 0, '*')
	if args < 1 {
		return words, 0
	}
	for ; args > 0; args-- {
		size, body := shortLength(b, i, '$')
		if size < 0 {
			return words, 0
		}
		end := body + size
		if !endsLine(b, end) {
			return words, 0
		}
		words = append(words, b[body:end:end])
		i = end + 2
	}
	return words, i
}

// shortDigits is how many decimal digits always fit into an int.
const shortDigits = 9 * (strconv.IntSize / 32)

// shortLength reads the line at b[i:] that has that first byte and a number of at most shortDigits digits, and returns
// the number with the index behind the line; -1 when there is no such line.
func shortLength(b []byte, i int, kind byte) (n, next int) {
	if i+4 > len(b) || b[i] != kind {
		return -1, i
	}
	i++
	if endsLine(b, i+1) { // nearly all are one digit
		if d := b[i] - '0'; d <= 9 {
			return int(d), i + 3
		}
		return -1, i
	}
	if b[i] == '0' {
		return -1, i
	}
	first := i
	for _, c := range b[i:min(len(b), i+shortDigits)] {
		d := c - '0'
		if d > 9 {
			break
		}
		n = n*10 + int(d)
		i++
	}
	if i == first || !endsLine(b, i) {
		return -1, i
	}
	return n, i + 2
}

// endsLine says whether CR LF stands at b[i:].
func endsLine(b []byte, i int) bool { return i+2 <= len(b) && string(b[i:i+2]) == "\r\n" }
