package upstream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// A dedicated connection's read buffer begins small, since most of them wait for a message or an element, and grows
// with what comes.
const (
	dedicatedBuffer    = 1 << 10
	dedicatedBufferMax = 64 << 10
	dedicatedShrink    = 64 // reads in a row that would have fitted the small buffer
)

// Receiver takes what Redis sends on a dedicated connection. Its methods are called by the connection's own goroutine,
// one at a time.
type Receiver interface {
	// Received is given the next bytes, in pieces of any size, pushes included. It must not keep p. It may block:
	// only its own client waits then.
	Received(p []byte)
	// Ended is told, once and as the last thing, why the connection is over.
	Ended(err error)
}

// Dedicated is a connection that serves one client at a time, for what Redis keeps per connection: transactions,
// subscriptions, blocking commands, tracking. It is never made again when it breaks, because that state would be gone.
type Dedicated struct {
	// Static after construction.
	node  *Node
	conn  *termConn
	id    int64    // CLIENT ID of the connection at Redis, 0 when it did not tell
	as    Identity // as which it was made
	spare bool     // its user's password is not valid any more: no other could be had

	// Name and Identity are what was last set on the connection. Only its present user may touch them.
	Name     string
	Identity Identity

	booking

	mu    sync.Mutex
	to    Receiver // nil: idle, or closed
	over  bool     // the goroutine has ended, or is about to
	cause error    // that Fail was given
}

// Dedicate returns a connection for one client alone: one that was given back, or a new one. The errors are those of
// Open.
func (n *Node) Dedicate(ctx context.Context, id Identity, to Receiver) (*Dedicated, error) {
	for {
		p, is := n.idleDedicated(id)
		if !is {
			break
		}
		if p.conn.term.Err() == nil && p.begin(to) {
			return p, nil
		}
	}
	counted, err := n.opts.Budget.admit(id, dedicatedConn)
	if err != nil {
		telemetry.UpstreamRefused.Add(1)
		return nil, err
	}
	ctx, cancel := n.whileOpen(ctx)
	defer cancel()
	p := &Dedicated{node: n, Identity: id, as: id, to: to, booking: booking{share: counted}}
	if err := n.patiently(ctx, p.connect); err != nil {
		counted.give()
		return nil, err
	}
	if !n.enter(p) {
		p.conn.Close()
		counted.give()
		return nil, &NotSentError{Cause: ErrClosed}
	}
	telemetry.Dedicated.Add(1)
	go p.run()
	return p, nil
}

func (p *Dedicated) connect(ctx context.Context) (err error) {
	p.conn, p.spare, err = p.node.connectMore(ctx, p.Identity, p.askID(p.Identity.Proto))
	return err
}

// AskQueued says what Redis has against a command of id, which does not run: it is queued in a transaction, on a
// connection of its own that is closed then. The reply is +QUEUED, an error, or Redis' error to MULTI. Other errors are
// those of Dedicate.
func (n *Node) AskQueued(ctx context.Context, id Identity, words ...string) (reply []byte, err error) {
	counted, err := n.opts.Budget.admit(id, dedicatedConn)
	if err != nil {
		telemetry.UpstreamRefused.Add(1)
		return nil, err
	}
	defer counted.give()
	conn, err := connect(ctx, n.target, id, n.opts.DialTimeout)
	if err != nil {
		return nil, notSent(err)
	}
	defer conn.Close()
	until := time.Now().Add(n.opts.DialTimeout)
	begun, err := ask(ctx, conn, until, "MULTI")
	switch {
	case err != nil:
		return nil, notSent(err)
	case ErrorIn(begun) != nil: // the command would be run
		return begun, nil
	case string(begun) != "+OK\r\n":
		return nil, notSent(errors.New("an unexpected reply to MULTI"))
	}
	if reply, err = ask(ctx, conn, until, words...); err != nil {
		return nil, notSent(err)
	}
	return reply, nil
}

// askID asks Redis for the connection's CLIENT ID by HELLO, which every user may run: CLIENT ID would stand in ACL LOG
// for a user who may not. It is 0 when Redis does not tell it (see mayNotKnow); any other error reply means that Redis
// refuses the connection.
func (p *Dedicated) askID(proto int) step {
	return step{[]string{"HELLO", strconv.Itoa(proto)}, func(reply []byte) error {
		said, _ := resp.ParseReply(reply)
		p.id, _ = strconv.ParseInt(field(said, "id"), 10, 64) // 0 if it does not tell
		refusal := Refused(ErrorIn(reply))
		if refusal == nil || mayNotKnow(refusal.Line) {
			return nil
		}
		return refusal
	}}
}

func mayNotKnow(line string) bool {
	harmless := []string{"NOPERM", "ERR unknown", "BUSY "}
	return slices.ContainsFunc(harmless, func(begin string) bool { return strings.HasPrefix(line, begin) })
}

// RedisID is the connection's CLIENT ID at Redis, or 0.
func (p *Dedicated) RedisID() int64 { return p.id }

// Authenticated notes that the connection's user has authenticated there, as id: it counts for that user.
func (p *Dedicated) Authenticated(id Identity) { p.share.move(id) }

// Write sends commands; what comes back goes to the Receiver. After an error the connection ends, and the Receiver's
// Ended is called.
func (p *Dedicated) Write(b []byte) error {
	_, err := p.conn.Write(b)
	if err != nil {
		p.conn.Close()
	}
	return err
}

// GiveBack ends the caller's use of a connection on which no reply is pending and that carries no state.
func (p *Dedicated) GiveBack() {
	p.mu.Lock()
	p.to = nil
	gone := p.over
	p.mu.Unlock()
	if gone || !p.node.giveBack(p) {
		p.conn.Close()
	}
}

// Fail ends the connection as if Redis had, for that reason: the Receiver is told. It does not block.
func (p *Dedicated) Fail(cause error) {
	p.mu.Lock()
	p.cause = cmp.Or(p.cause, cause)
	p.mu.Unlock()
	p.conn.Close()
}

// Close ends the connection. The Receiver is not called any more, except for a call that is under way.
func (p *Dedicated) Close() {
	p.mu.Lock()
	p.to = nil
	p.mu.Unlock()
	p.conn.Close()
}

// begin hands an idle connection to its next client, unless it has ended meanwhile.
func (p *Dedicated) begin(to Receiver) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	p.to = to
	return true
}

// receiver returns who gets what has just come. If that is nobody, or this is the last call, the connection is over.
func (p *Dedicated) receiver(last bool) Receiver {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.to == nil || last {
		p.over = true
	}
	return p.to
}

// run is the connection's goroutine: it reads until the connection ends. Node.Close waits for it.
func (p *Dedicated) run() {
	defer p.node.running.Done()
	defer telemetry.Dedicated.Add(-1)
	buf := make([]byte, dedicatedBuffer)
	small := 0
	for {
		n, err := p.conn.Read(buf)
		if n > 0 {
			to := p.receiver(false)
			if to == nil {
				err = violation("a reply that nobody asked for")
			} else {
				p.conn.lookAt(buf[:n])
				to.Received(buf[:n])
			}
		}
		if err != nil {
			p.ended(err)
			return
		}
		switch {
		case n == len(buf) && n < dedicatedBufferMax:
			buf, small = make([]byte, 4*n), 0
		case n > dedicatedBuffer:
			small = 0
		case len(buf) > dedicatedBuffer:
			if small++; small > dedicatedShrink {
				buf, small = make([]byte, dedicatedBuffer), 0
			}
		}
	}
}

// ended tells whoever has the connection that it is over.
func (p *Dedicated) ended(err error) {
	p.conn.Close()
	p.share.give()
	to := p.receiver(true)
	p.node.leave(p)
	if to == nil {
		return
	}
	if errors.Is(err, io.EOF) {
		err = errClosedByRedis
	}
	p.mu.Lock()
	err = cmp.Or(p.cause, err)
	p.mu.Unlock()
	to.Ended(err)
}

// fits says that the connection is id's, and kind one that serves one client at a time.
func (p *Dedicated) fits(id Identity, kind pipeKind) bool {
	return kind == dedicatedConn && p.Identity == id
}

// end closes a connection that nobody uses.
func (p *Dedicated) end() { p.conn.Close() }

// idleDedicated takes an idle connection of id.
func (n *Node) idleDedicated(id Identity) (p *Dedicated, is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, is = n.find(id, dedicatedConn).(*Dedicated)
	return p, is
}

// enter notes a new connection; false: the node is closed.
func (n *Node) enter(p *Dedicated) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.alone[p] = struct{}{}
	p.unused = time.AfterFunc(idleFor, func() { n.closeUnused(p) })
	n.running.Add(1)
	return true
}

// giveBack keeps a connection for its next client; false: it is not the node's any more.
func (n *Node) giveBack(p *Dedicated) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.alone[p]; !known || n.closed {
		return false
	}
	n.rest(p)
	return true
}

// closeUnused closes a connection if it is idle, unless another could not be had.
func (n *Node) closeUnused(p *Dedicated) {
	needed := p.spare && n.loggedIn(p.as)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropOldest(func(c keeps) bool { return c == keeps(p) && !needed })
	if needed {
		p.unused.Reset(idleFor)
	}
}

// leave forgets a connection that is over.
func (n *Node) leave(p *Dedicated) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.unused.Stop()
	n.forgetConn(p)
}

// DedicatedCount counts the connections that serve one client each: those in use and those that wait for the next. It
// is for tests of packages above this one.
func (n *Node) DedicatedCount() (used, idle int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.alone {
		if _, is := c.(*Dedicated); is && slices.Contains(n.idle, c) {
			idle++
		} else if is {
			used++
		}
	}
	return used, idle
}
