package history

import (
	"errors"
	"net"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/history"
)

// conn is one connection to a proxy.
type conn struct {
	tcp *net.TCPConn
	c   redis.Conn
}

// reach connects to a proxy.
func (r *round) reach(proxy, _ int) history.Conn {
	tcp, err := net.DialTimeout("tcp", r.proxies[proxy].addr, 2*time.Second)
	if err != nil {
		return nil
	}
	c := redis.NewConn(tcp, history.NoReply, 5*time.Second)
	if r.password != "" {
		if _, err := c.Do("AUTH", r.password); err != nil {
			_ = tcp.Close()
			return nil
		}
	}
	return &conn{tcp.(*net.TCPConn), c}
}

// Do implements history.Conn.
func (c *conn) Do(o *history.Op, patience time.Duration) (reply any, err error) {
	words := o.Command()
	if err = c.c.Send(words[0].(string), words[1:]...); err != nil {
		return nil, err
	}
	if err = c.c.Flush(); err != nil {
		return nil, err
	}
	reply, err = redis.ReceiveWithTimeout(c.c, patience)
	var said redis.Error
	var wait net.Error
	switch {
	case errors.As(err, &said):
		err = history.Refused(said)
	case errors.As(err, &wait) && wait.Timeout():
		err = history.ErrLate
	}
	return reply, err
}

// Close implements history.Conn.
func (c *conn) Close(reset bool) {
	if reset {
		_ = c.tcp.SetLinger(0)
	}
	_ = c.tcp.Close()
}
