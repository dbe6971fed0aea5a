package history

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
)

// NoReply is how long a client waits for a reply beyond what it asked to wait for: wide, since proxies and Redis are stopped
// and the machine may be busy.
const NoReply = 30 * time.Second

// Conn is a connection to a proxy.
type Conn interface {
	// Do sends o and waits for its reply, for patience at most. It is as redigo has it: nil, int64, "OK", []byte, []any. Of the errors
	// a Refused is what the proxy answered, ErrLate that patience is over, any other that the connection is.
	Do(o *Op, patience time.Duration) (reply any, err error)
	Close(reset bool)
}

// Refused is an error that was the reply.
type Refused string

func (r Refused) Error() string { return string(r) }

// ErrLate says that there was no reply in time.
var ErrLate = errors.New("no reply in time")

// Link is one connection of one client to one proxy.
type Link struct {
	Proxy, N int
	conn     Conn
	dead     bool
}

// Reach connects to a proxy, with the number that the connection has in the history; nil: it is down.
type Reach func(proxy, number int) Conn

// Client is one user of locks: a goroutine with its own dice and a connection to every proxy.
type Client struct {
	*Recorder
	N     int
	Dice  *rand.Rand
	Reach Reach
	Over  func() bool   // no new sections
	Gap   time.Duration // most between two rounds of a drive; 0: none

	links []*Link
	dials atomic.Int64 // numbers its connections, which some make side by side
	seq   int          // and its sections
}

// NewClient makes one that uses so many proxies.
func (r *Recorder) NewClient(n int, dice *rand.Rand, proxies int, reach Reach, over func() bool) *Client {
	return &Client{Recorder: r, N: n, Dice: dice, Reach: reach, Over: over, links: make([]*Link, proxies)}
}

// Dial connects to a proxy, or says nil when it is down.
func (c *Client) Dial(proxy int) *Link {
	n := (c.N+1)*10000 + int(c.dials.Add(1))
	conn := c.Reach(proxy, n)
	if conn == nil {
		return nil
	}
	return &Link{Proxy: proxy, N: n, conn: conn}
}

// link is a living connection to the proxy; nil: it is down.
func (c *Client) link(proxy int) *Link {
	if l := c.links[proxy]; l == nil || l.dead {
		c.links[proxy] = c.Dial(proxy)
	}
	return c.links[proxy]
}

// any is a living connection to any proxy.
func (c *Client) any() *Link { return c.link(c.Dice.IntN(len(c.links))) }

// rest passes the time between two rounds.
func (c *Client) rest() {
	if c.Gap > 0 {
		c.nap(time.Duration(c.Dice.Int64N(int64(c.Gap))))
	}
}

// Leave ends a connection, with a RST or a FIN, which gives up what its own owner holds.
func (c *Client) Leave(l *Link, reset bool) {
	if l.dead {
		return
	}
	l.dead = true
	o := &Op{Client: c.N, Proxy: l.Proxy, Conn: l.N, Verb: "CLOSE", Owner: ConnOwner(l.N), Outcome: OK}
	c.Begin(o)
	l.conn.Close(reset)
	c.End(o)
}

// Do sends o over l and waits for its reply.
func (c *Client) Do(l *Link, o *Op) *Op {
	return c.doFor(l, o, NoReply+time.Duration(max(o.Block, 0))*time.Millisecond)
}

// doFor is Do by a client that hangs up when there is no reply in time.
func (c *Client) doFor(l *Link, o *Op, patience time.Duration) *Op {
	o.Client, o.Proxy, o.Conn = c.N, l.Proxy, l.N
	if !o.Named {
		o.Owner = ConnOwner(l.N)
	}
	if o.Block == 0 && o.Acquires() {
		// Two in line before it may each have nested the lock for longer than a watchdog's lease, one after the other.
		// A waiter that is forgotten beside a free lock is found much sooner: see patience.
		patience = max(patience, 4*NoReply)
	}
	c.Begin(o)
	reply, err := l.conn.Do(o, patience)
	c.Conclude(o, reply, err)
	if o.Outcome == Unknown && (o.Code == "" || !o.Named) {
		// Nobody may go on with a connection whose own owner may or may not hold something.
		if errors.Is(err, ErrLate) && patience >= NoReply {
			c.Blame(Violation{Oracle: "liveness", Key: o.Key(), Ops: []*Op{o}, Text: "no reply in " + patience.String()})
		}
		c.Leave(l, true)
	}
	return o
}

// nothingDone are the beginnings of errors that say so, unknownDone those of errors that leave it open.
var (
	nothingDone = []string{"NOTHELD ", "LOCKLOST ", "LOCKKIND ", "DEADLOCK ", "ERR upstream unavailable", "ERR nothing was run"}
	unknownDone = []string{"ERR upstream connection lost", "ERR the reply to this ", "ERR not released: ", "NOQUORUM "}
)

// Conclude notes the reply.
func (c *Client) Conclude(o *Op, reply any, err error) {
	c.End(o)
	var said Refused
	switch {
	case errors.As(err, &said):
		o.Text = string(said)
		o.Code, _, _ = strings.Cut(o.Text, " ")
		switch {
		case begins(o.Text, nothingDone), o.Code == "NOQUORUM" && o.Acquires():
			o.Outcome = Failed
		case begins(o.Text, unknownDone):
			o.Outcome = Unknown
		case begins(o.Text, c.Refusals):
			o.Outcome, o.Code = Failed, "ERR"
		default:
			o.Outcome = Unknown
			c.Blame(Violation{Oracle: "replies", Key: o.Key(), Ops: []*Op{o}, Text: "no such error is promised: " + o.Text})
		}
	case err != nil:
		o.Outcome, o.Text = Unknown, err.Error()
	case reply == nil:
		o.Outcome = Null
	default:
		o.Outcome = OK
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
func (c *Client) shape(o *Op, reply any) {
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
		c.Blame(Violation{Oracle: "replies", Key: o.Key(), Ops: []*Op{o}, Text: "not a reply that this verb has"})
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
