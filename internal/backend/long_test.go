package backend

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

func TestOneLongReplyMovesNobody(t *testing.T) {
	var b longTraffic
	b.wanted(1)
	b.seen() // the first of a new client
	if b.wanted(closeBy) {
		t.Error("after one long reply all goes over the client's own connection")
	}
	b.seen()
	if b.wanted(1) {
		t.Error("two that are not close by count")
	}
	b.seen()
	if !b.wanted(1) {
		t.Error("two that are close by do not count")
	}
	b.wanted(backAfter)
	if b.wanted(1) {
		t.Error("the client does not go back to the shared connection")
	}
}

func TestLongReplyIsForgotten(t *testing.T) {
	var l longReplies
	get, k, other := &commandtable.Command{Name: "get"}, [][]byte{[]byte("GET"), []byte("k")}, [][]byte{[]byte("GET"), []byte("l")}
	l.note(get, k)
	l.forget(get, other)
	if !l.expected(get, k) || l.expected(get, other) {
		t.Error("what was noted is not what is expected")
	}
	l.forget(get, k)
	if l.expected(get, k) {
		t.Error("a reply that has become short is expected to be long")
	}
}
