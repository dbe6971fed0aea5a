package upstream

import (
	"net"
	"strings"
	"testing"
)

// What comes without being asked for ends the connection, whatever it is, and only an error is quoted.
func TestUnaskedFor(t *testing.T) {
	t.Parallel()
	const unasked = "a reply that nobody asked for"
	for sent, want := range map[string]string{
		"-ERR max number of clients reached\r\n": "Redis said ERR max number of clients reached",
		"-" + strings.Repeat("x", 300) + "\r\n":  unasked,
		"$1\r\nx\r\n":                            unasked,
		"\r\n":                                   unasked,
		"\r\n+OK\r\n":                            unasked,
		"\n":                                     unasked,
		"\x00":                                   unasked,
	} {
		ours, theirs := net.Pipe()
		rd := newReader(newLink(ours, true, 1))
		rd.end = copy(rd.buf, sent)
		if err := rd.consume(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", sent, err, want)
		}
		ours.Close()
		theirs.Close()
	}
}
