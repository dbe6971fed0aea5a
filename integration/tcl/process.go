package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// ping succeeds once addr answers PING.
func ping(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	if err == nil && !strings.HasPrefix(string(answer[:n]), "+PONG") {
		err = fmt.Errorf("PING: %.60q", answer[:n])
	}
	return err
}
