package downstream

import (
	"context"
	"net"
	"testing"
)

// The first reason counts, and everybody who waits for the end hears of it, also who comes late.
func TestEnd(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer there.Close()
	e := End{of: &stream{Conn: here}}
	early := e.Context(context.Background())
	if e.Over() || e.ClientGone() || early.Err() != nil {
		t.Error("it is over before its end")
	}
	e.HangUp(Gone, "QUIT")
	e.Cut(Left, "CLIENT KILL")
	if how, why := e.Reason(); how != Gone || why != "QUIT" || !e.Over() || !e.ClientGone() {
		t.Error(how, why)
	}
	if early.Err() == nil || e.Context(context.Background()).Err() == nil {
		t.Error("somebody does not hear of it:", early.Err())
	}
	if _, err := here.Write([]byte("x")); err == nil {
		t.Error("Cut leaves the socket open")
	}
	late := End{of: &stream{Conn: here}}
	late.HangUp(Left, "drained")
	if late.Context(context.Background()).Err() == nil {
		t.Error("a context that is made after the end")
	}
}
