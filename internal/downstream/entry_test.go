package downstream

import (
	"io"
	"net"
	"testing"
)

// A write of TLS' own must not fail for the deadline of a write long ago.
func TestSteadyWritesAfterADeadline(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	go io.Copy(io.Discard, there)
	c := &deadlineRenewer{Conn: here}
	c.SetWriteDeadline(past)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	there.Close()
}
