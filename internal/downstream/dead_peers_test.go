package downstream

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// Whatever is put around a client's socket, it is found.
func TestTCPUnderAConnection(t *testing.T) {
	t.Parallel()
	tcp := &net.TCPConn{}
	for name, c := range map[string]net.Conn{
		"plain": tcp, "behind a balancer": &proxiedConn{Conn: tcp}, "TLS": tls.Server(&deadlineRenewer{Conn: &proxiedConn{Conn: tcp}}, &tls.Config{}),
	} {
		if tcpOf(c) != tcp {
			t.Errorf("%s: not found", name)
		}
	}
	if here, _ := net.Pipe(); tcpOf(here) != nil {
		t.Error("TCP, in a pipe")
	}
	if pending, silent := unacknowledged(nil); pending || silent != 0 {
		t.Error("no connection has something to acknowledge")
	}
}

// A client whose machine vanished is noticed after 11 to 14 s, whichever of the two ways notices it.
func TestWhenTheDeadAreNoticed(t *testing.T) {
	t.Parallel()
	const least, most = 11 * time.Second, 14 * time.Second
	idle := map[time.Duration]int{}
	for range 1000 {
		k := keepAlive()
		if kept := k.Idle + time.Duration(k.Count)*k.Interval; kept != least || k.Count < 5 {
			t.Fatalf("keep-alive takes %v, and %d probes", kept, k.Count)
		}
		idle[k.Idle]++
	}
	if len(idle) != 4 || idle[firstProbe] == 0 || idle[latestProbe] == 0 {
		t.Errorf("first probes come after %v", idle)
	}
	if lifeSign < least || lifeSign+lookEvery > most || lookAfter > lifeSign {
		t.Errorf("looks for signs of life take %v to %v", lifeSign, lifeSign+lookEvery)
	}
}
