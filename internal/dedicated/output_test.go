package dedicated

import "testing"

// When the connection is lost the client gets the replies that are whole, and no part of another.
func TestOutputIsCut(t *testing.T) {
	t.Parallel()
	var o output
	o.add([]byte("+OK\r\n"))
	o.end()
	o.add([]byte("*2\r\n"))
	o.add([]byte(":1\r\n"))
	if !o.part {
		t.Error("a part of a reply is taken for all of it")
	}
	o.cut("lost")
	if got := string(o.bytes); got != "+OK\r\n" || o.part {
		t.Errorf("%q is left, part: %v", got, o.part)
	}
	o.add([]byte("-ERR lost\r\n"))
	o.end()
	o.add(nil)
	if got := string(o.bytes); got != "+OK\r\n-ERR lost\r\n" || o.part || o.whole != len(got) {
		t.Errorf("%q, part: %v, whole: %d", got, o.part, o.whole)
	}
}
