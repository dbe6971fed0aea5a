package downstream

import (
	"io"
	"net"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

// A client too many is refused until another one leaves, and operators have places of their own, of which the newest keep theirs.
func TestPlaces(t *testing.T) {
	t.Parallel()
	g := newTestGate(t, GateOptions{Bounds: Bounds{MaxClients: 2}})
	first, second := g.places.takePlace(nil, false), g.places.takePlace(nil, false)
	if g.places.takePlace(nil, false) != nil {
		t.Error("a third client has a place")
	}
	var operators []*Place
	var ends []net.Conn
	for range operatorPlaces + 1 {
		here, there := net.Pipe()
		operators, ends = append(operators, g.places.takePlace(here, true)), append(ends, there)
	}
	if _, err := ends[0].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the oldest operator: %v", err)
	}
	if first.Leave(); g.places.takePlace(nil, false) == nil {
		t.Error("a place is not given back")
	}
	second.Leave()
	for _, p := range operators {
		p.Leave()
	}
	if g.Places() != 1 {
		t.Errorf("left over: %d", g.Places())
	}
}

// A gate that drains lets nobody in, and its listeners end when it says so.
func TestDrain(t *testing.T) {
	t.Parallel()
	g := newTestGate(t, GateOptions{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, ok := g.Guard(ln, Entry{})
	if !ok {
		t.Fatal("not taken on")
	}
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	g.Drain()
	if _, err := conn.Read(make([]byte, 4096)); err == nil {
		t.Error("a client that may leave is read from in a drain")
	}
	if how, why := conn.(*Conn).End.Reason(); how != Left || why != "drained" {
		t.Errorf("it ended by %v, %q", how, why)
	}
	select {
	case err := <-ended:
		t.Errorf("Accept ended before its clients: %v", err)
	default:
	}
	g.Finish()
	if err := <-ended; err == nil {
		t.Error("a client after the drain")
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := g.Guard(other, Entry{}); ok {
		t.Error("a listener after the drain")
	}
	conn.Close()
}
