package dedicated

import (
	"testing"

	"github.com/lockproxy/lockproxy/upstream"
)

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

// The room for what the client gets is kept while replies are pending, and little of it afterwards.
func TestIdleConnectionKeepsLittle(t *testing.T) {
	t.Parallel()
	p := fed(2, ">B (subscribe:a:1 (subscribe:b:2 >o >o") // o is of the proxy's own
	p.View, p.conn = new(View), new(upstream.Dedicated)
	p.out.bytes = make([]byte, 0, keepBytes)
	for replies, most := range []int{keepBytes, idleBytes} {
		p.received([]byte("+OK\r\n"))
		if kept := cap(p.out.bytes); kept > most || replies == 0 && kept < most {
			t.Errorf("%d bytes are kept after %d replies", kept, replies+1)
		}
	}
}
