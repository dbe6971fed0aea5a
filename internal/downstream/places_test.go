package downstream

import (
	"net"
	"net/netip"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

// Whatever becomes of clients, and whatever address turns out to be theirs, nothing of them is left.
func TestPlacesAreGivenBack(t *testing.T) {
	t.Parallel()
	g := newTestGate(t, Options{Bounds: Bounds{MaxClients: 3, MaxPerAddress: 2}})
	of := func(ip string) netip.Addr { return addressOf(&net.TCPAddr{IP: net.ParseIP(ip)}) }
	here, there := of("127.0.0.1"), of("192.0.2.1")
	var all []*Place
	for _, addr := range []netip.Addr{here, here, {}} {
		p, refusal := g.places.enter(nil, addr, false)
		if refusal != "" {
			t.Fatal(refusal)
		}
		all = append(all, p)
	}
	if _, refusal := g.places.enter(nil, there, false); refusal != tooMany {
		t.Errorf("a fourth client was told %q", refusal)
	}
	if refusal := all[2].move(here); refusal != tooManyAddress {
		t.Errorf("a third client of an address was told %q", refusal)
	}
	if refusal := all[2].move(there); refusal != "" {
		t.Errorf("the first client of an address was told %q", refusal)
	}
	if refusal := all[0].move(there); refusal != "" || g.places.byAddress[here] != 1 || g.places.byAddress[there] != 2 {
		t.Errorf("moved: %q, %v", refusal, g.places.byAddress)
	}
	for _, p := range all {
		p.Leave()
	}
	if g.Places() != 0 || len(g.places.byAddress) > 0 {
		t.Errorf("left over: %d, %v", g.Places(), g.places.byAddress)
	}
}

// A gate that drains lets nobody in, and its listeners end when it says so.
func TestDrain(t *testing.T) {
	t.Parallel()
	g := newTestGate(t, Options{})
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
