package resp

import "testing"

// What a frame begins with is known from what has come of it.
func TestNextFrame(t *testing.T) {
	for in, want := range map[string]struct {
		Frame
		text, rest string
	}{
		"+OK\r\n:1\r\n":       {Frame{Kind: '+', N: 2, Whole: true}, "OK", ":1\r\n"},
		"-ERR no\r\n":         {Frame{Kind: '-', N: 6, Whole: true}, "ERR no", ""},
		"_\r\n":               {Frame{Kind: '_', N: -1, Whole: true}, "", ""},
		"$3\r\na\r\n\r\n+a":   {Frame{Kind: '$', N: 3, Whole: true}, "a\r\n", "+a"},
		"$3\r\n":              {Frame{Kind: '$', N: 3}, "", ""},
		"$3\r\nab":            {Frame{Kind: '$', N: 3}, "ab", ""},
		"$3\r\nabc\r":         {Frame{Kind: '$', N: 3}, "abc", ""},
		"$-1\r\n+a":           {Frame{Kind: '$', N: -1, Whole: true}, "-1", "+a"},
		"=5\r\ntxt:a\r\n":     {Frame{Kind: '=', N: 5, Whole: true}, "txt:a", ""},
		"*2\r\n:1\r\n":        {Frame{Kind: '*', N: 2, Whole: true}, "", ":1\r\n"},
		"%2\r\n":              {Frame{Kind: '%', N: 4, Whole: true}, "", ""},
		"*-1\r\n:1\r\n":       {Frame{Kind: '*', N: -1, Whole: true}, "-1", ":1\r\n"},
		">1\r\n$1\r\na\r\n":   {Frame{Kind: '>', N: 1, Whole: true}, "", "$1\r\na\r\n"},
		"":                    {},
		"\r\n":                {},
		"+OK\r":               {},
		"$12":                 {},
		"*x\r\n":              {Frame{Kind: '*', N: 1, Whole: true}, "x", ""}, // and ok is false
		"$999999999999999999": {},
	} {
		f, rest, ok := Next([]byte(in))
		text := string(f.Text)
		f.Text = nil
		bad := want.Kind == 0 || want.text == "x"
		if ok == bad || !bad && (f.Kind != want.Kind || f.N != want.N || f.Whole != want.Whole || text != want.text || string(rest) != want.rest) {
			t.Errorf("%q: %v %+v %q, %q is left", in, ok, f, text, rest)
		}
	}
}

// The first elements of a message tell what it is, as soon as they have come.
func TestElement(t *testing.T) {
	const message = "*4\r\n$8\r\npmessage\r\n$2\r\nk*\r\n$4\r\nkeys\r\n:1\r\n"
	for _, c := range []struct {
		in    string
		i     int
		text  string
		whole bool
		ok    bool
	}{
		{message, 0, "pmessage", true, true},
		{message, 2, "keys", true, true},
		{message, 3, "1", true, true},
		{message, 4, "", false, false},
		{message[:28], 2, "", false, false},
		{message[:32], 2, "ke", false, true},
		{message[:20], 2, "", false, false},
		{"*-1\r\n", 0, "", false, false},
		{"*0\r\n:1\r\n", 0, "", false, false},
		{"+OK\r\n:1\r\n", 0, "", false, false},
		{"", 0, "", false, false},
	} {
		if e, ok := Element([]byte(c.in), c.i); ok != c.ok || string(e.Text) != c.text || e.Whole != c.whole {
			t.Errorf("%q, %d: %v, %+v, %q", c.in, c.i, ok, e, e.Text)
		}
	}
}
