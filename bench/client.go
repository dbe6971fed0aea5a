package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// client is one connection of our own load generator. It is not safe for use
// by several goroutines, but may be closed from another one.
type client struct {
	net.Conn
	r   *bufio.Reader
	buf []byte // the last reply
}

func dial(ctx context.Context, addr string) (*client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{Conn: c, r: bufio.NewReader(c)}, nil
}

// exchange is one command and the beginning of the reply it must get.
type exchange struct {
	send []byte
	want string
}

func (e exchange) do(c *client) error {
	if _, err := c.Write(e.send); err != nil {
		return err
	}
	reply, err := c.reply()
	if err != nil {
		return err
	}
	if len(reply) < len(e.want) || string(reply[:len(e.want)]) != e.want {
		return fmt.Errorf("%.60q got the reply %.200q", e.send, reply)
	}
	return nil
}

// reply reads one RESP2 reply; it stands until the next one is read.
func (c *client) reply() ([]byte, error) {
	c.buf = c.buf[:0]
	for left := 1; left > 0; left-- {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		c.buf = append(c.buf, line...)
		kind := line[0]
		if kind != '$' && kind != '*' {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSuffix(string(line[1:]), "\r\n"))
		switch {
		case err != nil:
			return nil, fmt.Errorf("bad reply %.60q", c.buf)
		case kind == '*':
			left += max(n, 0)
		case n >= 0:
			at := len(c.buf)
			c.buf = append(c.buf, make([]byte, n+2)...)
			if _, err := io.ReadFull(c.r, c.buf[at:]); err != nil {
				return nil, err
			}
		}
	}
	return c.buf, nil
}

// command encodes a command as clients send it.
func command(args ...string) []byte { return resp.AppendCommand(nil, args...) }

// ask sends one command to Redis on a connection of its own and returns the
// raw reply; an error reply is an error.
func ask(ctx context.Context, addr string, args ...string) (string, error) {
	c, err := dial(ctx, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write(command(args...)); err != nil {
		return "", err
	}
	reply, err := c.reply()
	if err != nil {
		return "", err
	}
	if reply[0] == '-' {
		return "", fmt.Errorf("%s: %s", args[0], reply)
	}
	return string(reply), nil
}
