package resp

import (
	"bytes"
	"encoding/hex"
)

// appendInline appends the multibulk form of an inline command to b. line ends
// with its LF. A line without arguments appends nothing. The limits hold for
// the new form, since that is what a Redis behind us will judge. When the line
// is wrong, b is returned as it was.
func appendInline(b, line []byte, l *Limits) ([]byte, error) {
	line = bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'})
	args, ok := splitArgs(line)
	if !ok {
		return b, errUnbalancedQuotes
	}
	if len(args) == 0 {
		return b, nil
	}
	if err := l.checkArgs(int64(len(args))); err != nil {
		return b, err
	}
	before := len(b)
	b = AppendArray(b, len(args))
	for _, arg := range args {
		if err := l.checkBulk(int64(len(arg))); err != nil {
			return b[:before], err
		}
		b = AppendBulk(b, arg)
	}
	if len(b)-before > l.Command {
		return b[:before], errCommandTooBig
	}
	return b, nil
}

// splitArgs splits a line as Redis' sdssplitargs does. It reports false when a
// quote is left open, or closed right before something that is no space. line
// holds no NUL.
func splitArgs(line []byte) (args [][]byte, ok bool) {
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return args, true
		}
		arg, n, ok := splitArg(line[i:])
		if !ok {
			return nil, false
		}
		args = append(args, arg)
		i += n
	}
}

// splitArg takes the first argument of s, which does not begin with a space,
// and returns how much of s it took.
func splitArg(s []byte) (arg []byte, n int, ok bool) {
	for n < len(s) {
		switch c := s[n]; c {
		case ' ', '\n', '\r', '\t': // not \v and \f, which only separate
			return arg, n, true
		case '"', '\'':
			body, k, ok := quoted(s[n+1:], c)
			if !ok {
				return nil, 0, false
			}
			return append(arg, body...), n + 1 + k, true
		default:
			arg = append(arg, c)
			n++
		}
	}
	return arg, n, true
}

// quoted takes what follows an opening quote, up to and with the closing one.
func quoted(s []byte, quote byte) (body []byte, n int, ok bool) {
	for n < len(s) {
		c := s[n]
		switch {
		case c == quote:
			n++
			return body, n, n == len(s) || isSpace(s[n])
		case c == '\\' && quote == '\'' && n+1 < len(s) && s[n+1] == '\'':
			c = '\''
			n++
		case c == '\\' && quote == '"' && n+1 < len(s):
			var k int
			c, k = unescape(s[n+1:])
			n += k
		}
		body = append(body, c)
		n++
	}
	return nil, 0, false
}

// unescape returns the byte that s, which follows a backslash between double
// quotes, stands for, and how much of s it took.
func unescape(s []byte) (c byte, n int) {
	switch s[0] {
	case 'x':
		if len(s) > 2 {
			var b [1]byte
			if _, err := hex.Decode(b[:], s[1:3]); err == nil {
				return b[0], 3
			}
		}
		return 'x', 1
	case 'n':
		return '\n', 1
	case 'r':
		return '\r', 1
	case 't':
		return '\t', 1
	case 'b':
		return '\b', 1
	case 'a':
		return '\a', 1
	default:
		return s[0], 1
	}
}

// isSpace is C's isspace.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
