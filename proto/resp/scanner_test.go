package resp

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// frames are replies with their kinds.
var frames = []struct {
	in   string
	kind byte
}{
	{"+OK\r\n", '+'}, {"+\r\n", '+'}, {"+a\rb\nc\n\r\r\n", '+'},
	{"-ERR no\r\n", '-'}, {":-12\r\n", ':'}, {",3.14\r\n", ','}, {"#t\r\n", '#'}, {"_\r\n", '_'},
	{"(3492890328409238509324850943850943825024385\r\n", '('},
	{"$0\r\n\r\n", '$'}, {"$3\r\na\r\n\r\n", '$'}, {"$-1\r\n", '$'}, {"$0000000000003\r\nabc\r\n", '$'},
	{"=7\r\ntxt:abc\r\n", '='}, {"!5\r\nERR x\r\n", '!'},
	{"*0\r\n", '*'}, {"*-1\r\n", '*'}, {"*2\r\n$1\r\na\r\n*2\r\n:1\r\n*-1\r\n", '*'},
	{"%0\r\n", '%'}, {"%1\r\n+a\r\n%1\r\n+b\r\n~1\r\n_\r\n", '%'}, {"~2\r\n:1\r\n:2\r\n", '~'},
	{">3\r\n+message\r\n$1\r\nc\r\n$0\r\n\r\n", '>'},
	{"|1\r\n+ttl\r\n:3600\r\n$1\r\na\r\n", '$'}, {"|0\r\n*0\r\n", '*'}, {"|1\r\n+k\r\n|1\r\n+a\r\n+b\r\n+v\r\n>1\r\n_\r\n", '>'},
	{"*3\r\n:1\r\n|1\r\n+a\r\n*1\r\n+b\r\n:2\r\n:3\r\n", '*'},
	// A message within a reply is not one of its elements, the confirmation of a subscription is.
	{"*2\r\n>3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n:1\r\n:2\r\n", '*'},
	{"*1\r\n%1\r\n>4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\nc\r\n$1\r\nm\r\n+a\r\n>1\r\n*1\r\n>1\r\n_\r\n_\r\n+b\r\n", '*'},
	{"*2\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n>3\r\n$12\r\npunsubscribe\r\n$-1\r\n:0\r\n", '*'},
	{"*1\r\n>0\r\n>2\r\n$20\r\nsubscribesubscribe..\r\n_\r\n>1\r\n$-1\r\n>1\r\n+subscribe\r\n:1\r\n", '*'},
	{"*1\r\n>0\r\n$9\r\nsubscribe\r\n", '*'}, // the text is behind the push, which has none
	{strings.Repeat("*1\r\n", maxDepth) + ":1\r\n", '*'},
	{"$70000\r\n" + strings.Repeat("\n", 70000) + "\r\n", '$'},
}

// brokenFrames are not replies, and why.
var brokenFrames = []struct {
	in  string
	err error
}{
	{"x", ErrFrameType}, {"\r", ErrFrameType}, {";4\r\n", ErrFrameType}, {"*1\r\n.\r\n", ErrFrameType},
	{"$?\r\n", ErrFrameLength}, {"*?\r\n", ErrFrameLength}, {"%?\r\n", ErrFrameLength},
	{"$\r\n", ErrFrameLength}, {"$-\r\n", ErrFrameLength}, {"$-2\r\n", ErrFrameLength}, {"$-1x", ErrFrameLength}, {"$-1\rx", ErrFrameLength},
	{"%-1\r\n", ErrFrameLength}, {"~-1\r\n", ErrFrameLength}, {"=-1\r\n", ErrFrameLength}, {"$+1\r\n", ErrFrameLength}, {"$1 \r\n", ErrFrameLength},
	{"$1\n", ErrFrameLength}, {"$1\rx", ErrFrameLength}, {"*9223372036854775807\r\n", ErrFrameLength}, {"$" + strings.Repeat("0", 19), ErrFrameLength},
	{"$1\r\naxx", ErrFrameEnd}, {"$1\r\na\rx", ErrFrameEnd},
	{strings.Repeat("*1\r\n", maxDepth+1), ErrFrameDepth},
}

// scanAll scans text in pieces; it returns where frames end, their kinds, and
// the error that ended the scan.
func scanAll(text string, size func() int) (ends []int, kinds string, err error) {
	var s Scanner
	end := 0
	for rest := []byte(text); len(rest) > 0; {
		p := rest[:min(len(rest), max(size(), 1))]
		n, done, err := s.Scan(p)
		if err != nil {
			return ends, kinds, err
		}
		if !done && n != len(p) {
			panic("neither done nor all taken")
		}
		end += n
		rest = rest[n:]
		if done {
			ends = append(ends, end)
			kinds += string(s.Kind())
		}
	}
	return ends, kinds, nil
}

func TestScanner(t *testing.T) {
	var all strings.Builder
	var kinds string
	for _, f := range frames {
		all.WriteString(f.in)
		kinds += string(f.kind)
		for _, size := range []int{1, 2, 3, 1 << 20} {
			ends, kind, err := scanAll(f.in, every(size))
			if err != nil || len(ends) != 1 || ends[0] != len(f.in) || kind != string(f.kind) {
				t.Errorf("%.40q in pieces of %d: %v %q %v", f.in, size, ends, kind, err)
			}
		}
	}
	for seed := range uint64(20) {
		if _, got, err := scanAll(all.String(), anySize(seed)); got != kinds || err != nil {
			t.Errorf("got %q %v, want %q", got, err, kinds)
		}
	}
}

func TestScannerErrors(t *testing.T) {
	for _, f := range brokenFrames {
		for _, size := range []int{1, 1 << 20} {
			if ends, _, err := scanAll(":1\r\n"+f.in, every(size)); err != f.err || len(ends) != 1 {
				t.Errorf("%.40q in pieces of %d: %v, want %v", f.in, size, err, f.err)
			}
		}
	}
	var s Scanner
	_, _, first := s.Scan([]byte("x"))
	if n, done, err := s.Scan([]byte(":1\r\n")); n != 0 || done || err != first {
		t.Error("an error is not final")
	}
}

func TestScannerAllocatesNothing(t *testing.T) {
	var s Scanner
	for _, f := range frames {
		p := []byte(f.in)
		if n := testing.AllocsPerRun(10, func() { _, _, _ = s.Scan(p) }); n != 0 {
			t.Errorf("%.40q: %v allocations", f.in, n)
		}
	}
}

// reference is the Scanner as one would write it without caring for speed or
// pieces: it returns the length of the frame at the start of p, or 0 when that
// is not complete.
func reference(p string, depth int) (n int, kind byte, err error) {
	if p == "" {
		return 0, 0, nil
	}
	kind = p[0]
	if strings.IndexByte("+-:,#_(", kind) >= 0 {
		if end := strings.Index(p, "\r\n"); end >= 0 {
			n = end + 2
		}
		return n, kind, nil
	}
	if strings.IndexByte("$=!*~>%|", kind) < 0 {
		return 0, kind, ErrFrameType
	}
	if kind == '$' || kind == '*' {
		if strings.HasPrefix(p[1:], "-1\r\n") {
			return 5, kind, nil
		}
		if strings.HasPrefix("-1\r\n", p[1:]) {
			return 0, kind, nil
		}
	}
	digits := 0
	for 1+digits < len(p) && p[1+digits] >= '0' && p[1+digits] <= '9' {
		digits++
	}
	n = 1 + digits
	if digits > maxDigits {
		return 0, kind, ErrFrameLength
	}
	if end := p[n:]; !strings.HasPrefix(end, "\r\n") || digits == 0 {
		if end == "" || end == "\r" && digits > 0 {
			return 0, kind, nil
		}
		return 0, kind, ErrFrameLength
	}
	n += 2
	size, _ := strconv.Atoi(p[1 : 1+digits])
	if strings.IndexByte("$=!", kind) >= 0 {
		if len(p)-n < size {
			return 0, kind, nil
		}
		n += size
		if !strings.HasPrefix(p[n:], "\r\n") {
			if strings.HasPrefix("\r\n", p[n:]) {
				return 0, kind, nil
			}
			return 0, kind, ErrFrameEnd
		}
		return n + 2, kind, nil
	}
	if kind == '%' || kind == '|' {
		size *= 2
	}
	if size > 0 && depth == maxDepth {
		return 0, kind, ErrFrameDepth
	}
	aside := kind == '|' || kind == '>' && depth > 0 && (size == 0 || !confirms(p[n:]))
	for ; size > 0; size-- {
		k, _, err := reference(p[n:], depth+1)
		if k == 0 || err != nil {
			return 0, kind, err
		}
		n += k
	}
	if aside {
		k, kind, err := reference(p[n:], depth)
		if k == 0 || err != nil {
			return 0, kind, err
		}
		return n + k, kind, nil
	}
	return n, kind, nil
}

// confirms says whether the first element of a push is the name of a confirmation.
func confirms(elements string) bool {
	line, rest, _ := strings.Cut(elements, "\r\n")
	size, err := strconv.Atoi(strings.TrimPrefix(line, "$"))
	return err == nil && line[0] == '$' && size <= len(rest) && size >= 0 &&
		slices.Contains([]string{"subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe"}, rest[:size])
}

func FuzzScanner(f *testing.F) {
	for i, frame := range frames {
		f.Add([]byte(frame.in+":1\r\n"), uint64(i))
	}
	for i, frame := range brokenFrames {
		f.Add([]byte("*2\r\n:1\r\n"+frame.in), uint64(i))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		text := string(in)
		ends, kinds, err := scanAll(text, every(1<<20))
		for _, size := range []func() int{every(1), anySize(seed)} {
			ends2, kinds2, err2 := scanAll(text, size)
			if err != err2 || kinds != kinds2 || len(ends) > 0 && ends[len(ends)-1] != ends2[len(ends2)-1] {
				t.Fatalf("%v %q %v; in pieces %v %q %v", ends, kinds, err, ends2, kinds2, err2)
			}
		}
		at := 0
		for i := 0; ; i++ {
			n, kind, refErr := reference(text[at:], 0)
			if n == 0 || refErr != nil {
				if refErr != err || i != len(ends) {
					t.Fatalf("frame %d: %v, reference %v", i, err, refErr)
				}
				return
			}
			at += n
			if i >= len(ends) || ends[i] != at || kinds[i] != kind {
				t.Fatalf("frame %d: ends %v %q, reference %d %q", i, ends, kinds, at, kind)
			}
		}
	})
}
