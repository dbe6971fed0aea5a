package downstream

import (
	"crypto/tls"
	"net"
	"testing"
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
