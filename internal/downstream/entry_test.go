package downstream

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"
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

func TestLogLimiter(t *testing.T) {
	t.Parallel()
	var l logLimiter
	var told []int
	for range 5 {
		l.do(func(more int) { told = append(told, more) })
	}
	l.next = time.Time{}
	l.do(func(more int) { told = append(told, more) })
	if fmt.Sprint(told) != "[0 4]" {
		t.Error(told)
	}
}
