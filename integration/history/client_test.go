package history

import (
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// noReply is how long a client waits for a reply beyond what it asked to wait for: wide, since proxies and Redis are stopped
// and the machine may be busy.
const noReply = 30 * time.Second

// link is one connection of one client to one proxy.
type link struct {
	proxy, n int
	tcp      *net.TCPConn
	c        redis.Conn
	dead     bool
}

// client is one user of locks: a goroutine with its own dice and a connection to every proxy.
type client struct {
	*recorder
	n     int
	dice  *rand.Rand
	addrs []string
	links []*link
	seq   int
	over  func() bool // no new sections
}

// dial connects to a proxy, or says nil when it is down.
func (c *client) dial(proxy int) *link {
	conn, err := net.DialTimeout("tcp", c.addrs[proxy], 2*time.Second)
	if err != nil {
		return nil
	}
	return &link{proxy: proxy, n: int(c.conns.Add(1)), tcp: conn.(*net.TCPConn), c: redis.NewConn(conn, 0, 5*time.Second)}
}

// link is a living connection to the proxy; nil: it is down.
func (c *client) link(proxy int) *link {
	if l := c.links[proxy]; l == nil || l.dead {
		c.links[proxy] = c.dial(proxy)
	}
	return c.links[proxy]
}

// end ends a connection, with a RST or a FIN, which gives up what its own owner holds.
func (c *client) end(l *link, reset bool) {
	if l.dead {
		return
	}
	l.dead = true
	o := &op{Client: c.n, Proxy: l.proxy, Conn: l.n, Verb: "CLOSE", Owner: connOwner(l.n), Outcome: ok}
	c.begin(o)
	if reset {
		_ = l.tcp.SetLinger(0)
	}
	_ = l.tcp.Close()
	c.mu.Lock()
	o.Return = c.now()
	c.mu.Unlock()
}

// do sends o over l and waits for its reply.
func (c *client) do(l *link, o *op) *op {
	return c.doFor(l, o, noReply+time.Duration(max(o.Block, 0))*time.Millisecond)
}

// doFor is do by a client that hangs up when there is no reply in time.
func (c *client) doFor(l *link, o *op, patience time.Duration) *op {
	o.Client, o.Proxy, o.Conn = c.n, l.proxy, l.n
	if !o.Explicit {
		o.Owner = connOwner(l.n)
	}
	if o.Block == 0 && o.acquires() {
		patience = max(patience, 2*noReply)
	}
	words := o.command()
	c.begin(o)
	err := l.c.Send(words[0].(string), words[1:]...)
	if err == nil {
		err = l.c.Flush()
	}
	var reply any
	if err == nil {
		reply, err = redis.ReceiveWithTimeout(l.c, patience)
	}
	c.conclude(o, reply, err)
	if o.Outcome == unknown && (o.Code == "" || !o.Explicit) {
		// Nobody may go on with a connection whose own owner may or may not hold something.
		if wait, late := err.(net.Error); late && wait.Timeout() && patience >= noReply {
			c.blame(violation{Oracle: "liveness", Key: o.key(), Ops: []*op{o}, Text: "no reply in " + patience.String()})
		}
		c.end(l, true)
	}
	return o
}

// nothingDone are the beginnings of errors that say so, unknownDone those of errors that leave it open.
var (
	nothingDone = []string{"NOTHELD ", "LOCKLOST ", "LOCKKIND ", "DEADLOCK ", "ERR upstream unavailable", "ERR nothing was run",
		"ERR this owner already holds "}
	unknownDone = []string{"ERR upstream connection lost", "ERR the reply to this ", "ERR not released: ", "ERR the lock was granted too late", "NOQUORUM "}
)

// conclude notes the reply.
func (c *client) conclude(o *op, reply any, err error) {
	c.mu.Lock()
	o.Return = c.now()
	c.mu.Unlock()
	var said redis.Error
	switch {
	case errors.As(err, &said):
		o.Text = string(said)
		o.Code, _, _ = strings.Cut(o.Text, " ")
		switch {
		case begins(o.Text, nothingDone), o.Code == "NOQUORUM" && o.acquires():
			o.Outcome = failed
		case begins(o.Text, unknownDone):
			o.Outcome = unknown
		default:
			o.Outcome = unknown
			c.blame(violation{Oracle: "replies", Key: o.key(), Ops: []*op{o}, Text: "no such error is promised: " + o.Text})
		}
	case err != nil:
		o.Outcome, o.Text = unknown, err.Error()
	case reply == nil:
		o.Outcome = null
	default:
		o.Outcome = ok
		switch v := reply.(type) {
		case int64:
			o.N = v
		case []byte:
			o.Text = string(v)
		case []any: // tokens
			for _, e := range v {
				n, _ := e.(int64)
				o.Tokens = append(o.Tokens, n)
			}
		}
		c.shape(o, reply)
	}
}

// shape checks that a reply is of the kind that the verb has.
func (c *client) shape(o *op, reply any) {
	_, number := reply.(int64)
	_, list := reply.([]any)
	good := true
	switch o.Verb {
	case "LOCK", "FAIRLOCK", "RLOCK", "WLOCK":
		good = number == o.Fence && (number && o.N > 0 || reply == "OK")
	case "MULTILOCK":
		good = list == o.Fence && (list && len(o.Tokens) == len(o.Keys) || reply == "OK")
	case "UNLOCK":
		good = number && (o.N == 0 || o.N == 1)
	case "RENEW":
		good = number && o.N == 1
	case "MULTIUNLOCK":
		good = number && o.N >= 0 && o.N <= int64(len(o.Keys))
	}
	if !good {
		c.blame(violation{Oracle: "replies", Key: o.key(), Ops: []*op{o}, Text: "not a reply that this verb has"})
	}
}

func begins(text string, with []string) bool {
	for _, w := range with {
		if strings.HasPrefix(text, w) {
			return true
		}
	}
	return false
}
