package resp

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sent is what a client sends in one go, and what has to come of it.
type sent struct {
	name string
	in   string
	out  string // the commands delivered
	err  string // the ProtocolError's text
	// open: Redis would wait for more bytes, which a comparison cannot see.
	open bool
}

const ping = "*1\r\n$4\r\nPING\r\n"

// mb writes a multibulk command.
func mb(args ...string) string { return string(AppendCommand(nil, args...)) }

func echoes(n int) string { return strings.Repeat("*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n", n) }

// requests has a row for everything an open network does to redcon, for each of
// Redis' protocol errors, and for what Redis takes although it looks wrong.
var requests = []sent{
	{name: "one", in: ping, out: ping},
	{name: "pipeline", in: echoes(300), out: echoes(300)},
	{name: "empty argument", in: mb("ECHO", ""), out: mb("ECHO", "")},
	{name: "binary argument", in: mb("ECHO", "\x00\r\n*1\r\n"), out: mb("ECHO", "\x00\r\n*1\r\n")},
	{name: "longer than a read", in: mb("ECHO", strings.Repeat("v", 50000)) + ping,
		out: mb("ECHO", strings.Repeat("v", 50000)) + ping},

	// What kills redcon (R1, R2, R6) and what it answers otherwise than Redis.
	{name: "bulk overflow", in: "*1\r\n$9223372036854775807\r\n", err: "invalid bulk length"},
	{name: "bulk beyond 64 bits", in: "*1\r\n$18446744073709551617\r\n", err: "invalid bulk length"},
	{name: "count overflow", in: "*9223372036854775807\r\n", err: "invalid multibulk length"},
	{name: "count beyond 64 bits", in: "*18446744073709551617\r\n", err: "invalid multibulk length"},
	{name: "count beyond int", in: "*2147483648\r\n", err: "invalid multibulk length"},
	{name: "count of 19 digits and more", in: "*1" + strings.Repeat("0", 40) + "\r\n", err: "invalid multibulk length"},
	{name: "negative bulk", in: "*1\r\n$-7\r\n", err: "invalid bulk length"},
	{name: "null bulk", in: "*1\r\n$-1\r\n", err: "invalid bulk length"},
	{name: "bulk without digits", in: "*1\r\n$\r\n", err: "invalid bulk length"},
	{name: "bulk with a minus only", in: "*1\r\n$-\r\n", err: "invalid bulk length"},
	{name: "bulk of 513 MB", in: "*1\r\n$536870913\r\n", err: "invalid bulk length"},
	{name: "bulk with a plus", in: "*1\r\n$+4\r\n", err: "invalid bulk length"},
	{name: "bulk with a zero in front", in: "*1\r\n$04\r\n", err: "invalid bulk length"},
	{name: "bulk with a space", in: "*1\r\n$4 \r\n", err: "invalid bulk length"},
	{name: "bulk of letters", in: "*1\r\n$abc\r\n", err: "invalid bulk length"},
	{name: "LF in a length", in: "*1\r\n$4\nPING\r\n", err: "invalid bulk length"},
	{name: "negative count beyond 64 bits", in: "*-9223372036854775809\r\n", err: "invalid multibulk length"},
	{name: "count without digits", in: "*\r\n", err: "invalid multibulk length"},
	{name: "count with a minus only", in: "*-\r\n", err: "invalid multibulk length"},
	{name: "count of minus zero", in: "*-0\r\n", err: "invalid multibulk length"},
	{name: "count with a zero in front", in: "*01\r\n", err: "invalid multibulk length"},
	{name: "count of letters", in: "*x\r\n", err: "invalid multibulk length"},
	{name: "no dollar", in: "*1\r\nPING\r\n", err: "expected '$', got 'P'"},
	{name: "colon for a dollar", in: "*2\r\n$4\r\nECHO\r\n:1\r\n", err: "expected '$', got ':'"},
	{name: "high byte for a dollar", in: "*1\r\n\xff\r\n", err: "expected '$', got '\xff'"},
	{name: "nothing for a dollar", in: "*1\r\n\r\n", err: "expected '$', got ' '"},
	{name: "LF for a dollar", in: "*1\r\n\n\r\n", err: "expected '$', got ' '"},
	{name: "valid prefix first", in: echoes(2) + "*1\r\n$-7\r\n", out: echoes(2), err: "invalid bulk length"},
	{name: "nothing after an error", in: ping + "*x\r\n" + ping, out: ping, err: "invalid multibulk length"},

	// Swallowed.
	{name: "count zero", in: "*0\r\n" + ping, out: ping},
	{name: "null count", in: ping + "*-1\r\n" + ping, out: ping + ping},
	{name: "any negative count", in: "*-9223372036854775808\r\n" + ping, out: ping},
	{name: "many of nothing", in: strings.Repeat("*0\r\n\r\n", 3000) + ping, out: ping},
	{name: "empty lines", in: "\r\n\n \r\n\t\n" + ping, out: ping},

	// Line ends Redis does not look at.
	{name: "no LF behind the count", in: "*1\rX$4\r\nPING\r\n", out: ping},
	{name: "no LF behind the length", in: "*1\r\n$4\r\rPING\r\n", out: ping},
	{name: "no CR LF behind the body", in: "*1\r\n$4\r\nPINGxy" + ping, out: ping + ping},

	// Lines without an end.
	{name: "endless inline", in: strings.Repeat("a", 65537), err: "too big inline request"},
	{name: "endless count", in: "*" + strings.Repeat("1", 65536), err: "too big mbulk count string"},
	{name: "endless length", in: "*1\r\n$" + strings.Repeat("1", 65536), err: "too big bulk count string"},
	{name: "NUL hides the end of a line", in: "PI\x00NG\r\n" + strings.Repeat("\n", 65530), err: "too big inline request"},
	{name: "NUL hides the end of a count", in: "*1\x00\r\n" + strings.Repeat("\r", 65532), err: "too big mbulk count string"},
	{name: "count of 64 KB", in: "*" + strings.Repeat("1", 65535) + "\r\n", err: "invalid multibulk length"},

	// Inline commands.
	{name: "inline", in: "PING\r\n", out: ping},
	{name: "inline, LF only", in: "PING\n", out: ping},
	{name: "inline among others", in: ping + "ECHO a\r\n*0\r\n" + ping + "ECHO b\r\n\r\n" + ping,
		out: ping + mb("ECHO", "a") + ping + mb("ECHO", "b") + ping},
	{name: "inline with blanks", in: " \t ECHO \t  a\v\f \r\n", out: mb("ECHO", "a\v\f")},
	{name: "inline CR inside", in: "ECHO\ra\r\r\n", out: mb("ECHO", "a")},
	{name: "double quotes", in: `ECHO "a b\x41\xfF\n\r\t\b\a\q\"\\"` + "\r\n", out: mb("ECHO", "a bA\xff\n\r\t\b\aq\"\\")},
	{name: "half a hex escape", in: `ECHO "\x4"` + "\r\n", out: mb("ECHO", "x4")},
	{name: "single quotes", in: `ECHO 'a "b\n\'c'` + "\r\n", out: mb("ECHO", `a "b\n'c`)},
	{name: "empty quotes", in: `ECHO ""` + "\r\n", out: mb("ECHO", "")},
	{name: "quote in mid-word", in: `ECHO a"b c"` + "\r\n", out: mb("ECHO", "ab c")},
	{name: "quoted name", in: `"PING"` + "\r\n", out: ping},
	{name: "open quote", in: `ECHO "a` + "\r\n", err: "unbalanced quotes in request"},
	{name: "open single quote", in: `ECHO 'a` + "\r\n", err: "unbalanced quotes in request"},
	{name: "escape at the end", in: `ECHO "a\` + "\r\n", err: "unbalanced quotes in request"},
	{name: "text behind a quote", in: `ECHO "a"b` + "\r\n", err: "unbalanced quotes in request"},
	{name: "text behind a single quote", in: `ECHO 'a'b` + "\r\n", err: "unbalanced quotes in request"},
	{name: "inline prefix first", in: "PING\r\n'\r\n", out: ping, err: "unbalanced quotes in request"},
	{name: "inline beginning with a dollar", in: "$4\r\nPING\r\n", out: mb("$4") + ping},
	{name: "inline beginning with a huge dollar", in: "$9223372036854775807 \r\n", out: mb("$9223372036854775807")},
	{name: "long inline", in: "ECHO " + strings.Repeat("a", 60000) + "\r\n" + ping, out: mb("ECHO", strings.Repeat("a", 60000)) + ping},
	{name: "inlines", in: strings.Repeat("ECHO x\n", 5000), out: echoes(5000)},

	// Waiting for more.
	{name: "unfinished", in: ping + "*2\r\n$4\r\nEC", out: ping, open: true},
	{name: "unfinished count", in: "*1", open: true},
	{name: "unfinished inline", in: "PING", open: true},
	{name: "waiting for 512 MB", in: "*1\r\n$536870912\r\n", open: true},
}

// chopped delivers a text in reads of the given size, then io.EOF.
type chopped struct {
	text string
	size func() int
}

func (c *chopped) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(p, c.text[:min(len(c.text), c.size())])
	c.text = c.text[n:]
	return n, nil
}

func every(n int) func() int { return func() int { return n } }

func anySize(seed uint64) func() int {
	rnd := rand.New(rand.NewPCG(seed, 0))
	return func() int { return 1 + rnd.IntN(1<<rnd.IntN(14)) }
}

// drain reads all that r delivers into slices of size bytes, or for which that holds a stand-in, and its error.
func drain(r *Reader, size int) (string, error) {
	var out []byte
	p := make([]byte, size)
	for {
		n, err := r.Read(p)
		b := p[:n]
		if long := r.Long(); long != nil {
			b = long
		}
		out = append(out, b...)
		if err != nil {
			return string(out), err
		}
	}
}

func errText(err error) string {
	var broken *ProtocolError
	if errors.As(err, &broken) {
		return broken.Text
	}
	return ""
}
