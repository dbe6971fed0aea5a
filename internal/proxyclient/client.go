// Package proxyclient is how lockproxy run and lockproxy top ask a lockproxy.
package proxyclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Client asks the lockproxy at an address, or, behind one address, whichever is there. It connects when it is asked, and
// again after Close. One goroutine uses it at a time.
type Client struct {
	address
	name string   // of the connection
	conn net.Conn // nil: none
}

const (
	dialTime  = 5 * time.Second
	loginTime = 10 * time.Second
	// mostSaid is how many bytes of the replies to one question are read.
	mostSaid = 64 << 20
)

var errSilent = errors.New("the proxy does not answer")

// Ask sends commands together and returns their replies, each of which may be an error. It waits so long for them if
// limit is not 0. After an error of its own it is closed.
func (c *Client) Ask(ctx context.Context, limit time.Duration, commands ...[]string) (replies []resp.Reply, err error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errSilent)
		defer cancel()
	}
	if c.conn == nil {
		err = c.dialProxy(ctx)
	}
	if err == nil {
		replies, err = exchange(ctx, c.conn, commands)
	}
	if err != nil {
		c.Close()
		err = fmt.Errorf("%s: %w", c.at.Addr, err)
	}
	return replies, err
}

// Close ends the connection, and with it what is waited for over it.
func (c *Client) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// dialProxy connects and logs in. A user who may not name the connection needs no name.
func (c *Client) dialProxy(ctx context.Context) error {
	t, err := c.target()
	if err != nil {
		return err
	}
	conn, err := upstream.Dial(ctx, t, dialTime)
	if err != nil {
		return err
	}
	var first [][]string
	if t.Password != "" {
		first = append(first, []string{"AUTH", cmp.Or(t.User, "default"), t.Password})
	}
	if t.DB != 0 {
		first = append(first, []string{"SELECT", strconv.Itoa(t.DB)})
	}
	ctx, cancel := context.WithTimeoutCause(ctx, loginTime, errSilent)
	defer cancel()
	replies, err := exchange(ctx, conn, append(first, []string{"CLIENT", "SETNAME", c.name}))
	for i := range min(len(first), len(replies)) {
		if refused := upstream.ErrorIn(replies[i].Raw); refused != nil {
			err = refused
			break
		}
	}
	if err != nil {
		conn.Close()
		return err
	}
	c.conn = conn
	return nil
}

// exchange sends commands and returns all their replies; with an error those that came before it.
func exchange(ctx context.Context, conn net.Conn, commands [][]string) (replies []resp.Reply, err error) {
	var request []byte
	for _, words := range commands {
		request = resp.AppendCommand(request, words...)
	}
	got, err := upstream.Exchange(ctx, conn, request, len(commands), mostSaid)
	for _, one := range got {
		reply, _ := resp.ParseReply(one)
		replies = append(replies, reply)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return replies, err
}
