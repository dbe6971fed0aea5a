package top

import (
	"net"
	"strings"
	"testing"
)

// A proxy whose Redis is away closes whoever connects with HELLO. The operator is told what that means, and not only that the
// connection ended.
func TestClosedByTheProxy(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1024))
			c.Close()
		}
	}()
	o, err := parse([]string{"--address", ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: o.target}
	defer p.close()
	if _, err = p.ask(t.Context(), &query{list: &lists[0], rows: 1}); err == nil || !strings.Contains(err.Error(), "its Redis may be away") {
		t.Errorf("got %v", err)
	}
}
