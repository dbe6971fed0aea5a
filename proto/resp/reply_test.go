package resp

import "testing"

// flat writes a reply taken apart.
func flat(r Reply) string {
	s := string(r.Kind) + string(r.Text)
	if r.Null {
		s += "null"
	}
	for _, e := range r.Elems {
		s += "(" + flat(e) + ")"
	}
	return s
}

func TestParseReply(t *testing.T) {
	for in, want := range map[string]string{
		"+OK\r\n":                          "+OK",
		"-ERR no\r\n":                      "-ERR no",
		":-3\r\n":                          ":-3",
		"$3\r\na\r\n\r\n":                  "$a\r\n",
		"$4\r\na\r\nb\r\n":                 "$a\r\nb",
		"$-1\r\n":                          "$-1null",
		"_\r\n":                            "_null",
		"=5\r\ntxt:a\r\n":                  "=a",
		"*0\r\n":                           "*",
		"*-1\r\n":                          "*-1null",
		"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n":    "*(:1)(*($x))",
		"%1\r\n+k\r\n~2\r\n,1.5\r\n#t\r\n": "%(+k)(~(,1.5)(#t))",
		"*2\r\n:1\r\n":                     "",
		"$3\r\nab":                         "",
		"":                                 "",
	} {
		r, ok := ParseReply([]byte(in))
		if ok != (want != "") || ok && (flat(r) != want || string(r.Raw) != in) {
			t.Errorf("%q: %v, %q, raw %q; want %q", in, ok, flat(r), r.Raw, want)
		}
	}
	for in, list := range map[string]bool{"*0\r\n": true, "%0\r\n": true, "~1\r\n:1\r\n": true, "$1\r\nx\r\n": false} {
		if r, _ := ParseReply([]byte(in)); r.IsList() != list {
			t.Errorf("%q: a list: %v", in, !list)
		}
	}
}
