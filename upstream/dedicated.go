package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/socket"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// ErrInterrupted is why a read of a Dedicated's has ended if nothing came before its time, or before Interrupt.
var ErrInterrupted = errors.New("the read was interrupted")

// Dedicated is a connection that serves one client at a time, for what Redis keeps per connection: transactions,
// subscriptions, blocking commands, tracking. It is never made again when it breaks, because that state would be gone.
// Its user writes to it and reads from it; while nobody uses it nobody reads.
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
	closed atomic.Bool
}

// Dedicate returns a connection for one client alone: one that was given back, or a new one. The errors are those of
// Open.
func (n *Node) Dedicate(ctx context.Context, id Identity) (*Dedicated, error) {
	for {
		p, is := n.idleDedicated(id)
		if !is {
			break
		}
		if p.Silent() && nothingRead(p.conn.Conn) {
			return p, nil
		}
		p.Close()
	}
	counted, err := n.opts.Budget.admit(id, dedicatedConn)
	if err != nil {
		telemetry.UpstreamRefused.Add(1)
		return nil, err
	}
	ctx, cancel := n.whileOpen(ctx)
	defer cancel()
	p := &Dedicated{node: n, Identity: id, as: id, booking: booking{share: counted}}
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

// Write sends commands. After an error, ErrInterrupted as well, the connection is of no further use.
func (p *Dedicated) Write(b []byte) error {
	_, err := p.conn.Write(b)
	return p.named(err)
}

// Read reads what Redis has sent, pushes included. The error is ErrInterrupted after the time that SetReadDeadline set,
// and may be read after; with any other the connection is over.
func (p *Dedicated) Read(b []byte) (int, error) {
	n, err := p.conn.Read(b)
	if n > 0 {
		p.conn.lookAt(b[:n])
	}
	return n, p.named(err)
}

// named is an error of the connection's.
func (p *Dedicated) named(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrInterrupted
	case errors.Is(err, io.EOF):
		return errClosedByRedis
	}
	return err
}

// SetReadDeadline has reads end at that time; zero: they do not.
func (p *Dedicated) SetReadDeadline(t time.Time) { p.conn.SetReadDeadline(t) }

// SetWriteDeadline has writes end at that time; zero: they do not.
func (p *Dedicated) SetWriteDeadline(t time.Time) { p.conn.SetWriteDeadline(t) }

// Interrupt ends the reads and writes that are under way, and those that follow, until the next deadline is set. Any
// goroutine may call it.
func (p *Dedicated) Interrupt() { p.conn.SetDeadline(time.Unix(1, 0)) }

// Silent says that nothing has come, neither a byte nor the connection's end.
func (p *Dedicated) Silent() bool { return p.conn.term.Err() == nil && socket.Silent(p.conn.Conn) }

// nothingRead says that TLS keeps nothing that it has read from its socket.
func nothingRead(c net.Conn) bool {
	secure, is := c.(*tls.Conn)
	if !is {
		return true
	}
	secure.SetReadDeadline(time.Unix(1, 0))
	_, err := secure.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// GiveBack ends the caller's use of a connection on which no reply is pending and that carries no state.
func (p *Dedicated) GiveBack() {
	if !p.node.giveBack(p) {
		p.Close()
	}
}

// Close ends the connection.
func (p *Dedicated) Close() {
	p.end()
	p.node.leave(p)
}

// end closes a connection that nobody uses, or whose user then finds out.
func (p *Dedicated) end() {
	p.conn.Close()
	p.share.give()
	if !p.closed.Swap(true) {
		telemetry.Dedicated.Add(-1)
	}
}

// fits says that the connection is id's, and kind one that serves one client at a time.
func (p *Dedicated) fits(id Identity, kind pipeKind) bool {
	return kind == dedicatedConn && p.Identity == id
}

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
