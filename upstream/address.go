package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	addressEvery = time.Second            // how often the Redis at an address is asked for its role
	addressGap   = 200 * time.Millisecond // the shortest time between two such questions
	addressTime  = time.Second            // for an answer, connection included
)

// role is what a Redis says that it is.
type role int32

const (
	unreachable role = iota
	untold           // it answers something else
	master
	replica
)

// Address is the Resolver of a Target that names its Redis by an address: a DNS name, a Kubernetes service, a virtual
// IP. A failover may move the address to another Redis while the former master lives on as a replica, with all
// connections to it. So the Redis that the connections lead to is asked for its role once a second, and at each
// READONLY. When it has become a replica, and a new connection leads to a master, all connections end, and are made
// again: not only the one that heard READONLY, since subscribers and the lock engine would stay. Run ids are not compared,
// since INFO needs a right; and a replica is not refused, since reads from one work.
type Address struct {
	target  Target // has no Resolver
	log     *slog.Logger
	ctx     context.Context // ends when it is closed
	stop    context.CancelFunc
	running sync.WaitGroup
	again   chan struct{} // one slot: ask now

	// Terms are those in which the role was asked over one and the same connection. When that connection is lost, those
	// that were made before may lead to another Redis than the next one: their term goes on, and ends at their first
	// READONLY.
	Terms

	present atomic.Int32 // a role: what the Redis at the address said last
}

// FollowAddress watches t's address from now on, until Close, and sets t.Resolver. Call it once, when t is complete.
// log nil is slog.Default().
func FollowAddress(t *Target, log *slog.Logger) *Address {
	if log == nil {
		log = slog.Default()
	}
	a := &Address{target: *t, log: log, again: make(chan struct{}, 1)}
	a.Begin(t.Addr)
	a.ctx, a.stop = context.WithCancel(context.Background())
	t.Resolver = a
	a.running.Add(1)
	go a.watch()
	return a
}

// Close stops watching. It does not close the connections that Dial has made.
func (a *Address) Close() {
	a.stop()
	a.running.Wait()
}

// Dial implements Resolver.
func (a *Address) Dial(ctx context.Context, timeout time.Duration) (net.Conn, context.Context, error) {
	now, _ := a.Now()
	conn, err := Dial(ctx, a.target, timeout)
	if err != nil {
		return nil, nil, err
	}
	return conn, now, nil
}

// Check implements Resolver.
func (a *Address) Check(term context.Context) {
	now, _ := a.Now()
	if t, is := term.(*Term); is && t != now {
		a.endTerm(t)
	}
	retry.Wake(a.again)
}

// RefusesWrites says why Redis refuses writes: the one at the address is a replica; nil: it was no replica when it was
// asked last.
func (a *Address) RefusesWrites() error {
	if role(a.present.Load()) == replica {
		return errors.New("the Redis at the address is a replica, and refuses writes")
	}
	return nil
}

// watch is the goroutine that asks for the role.
func (a *Address) watch() {
	defer a.running.Done()
	var at *termConn
	for a.ctx.Err() == nil {
		at = a.lookAgain(at)
		retry.Sleep(a.ctx, addressGap, nil)
		retry.Sleep(a.ctx, addressEvery-addressGap, a.again)
	}
	at.Close()
}

// lookAgain asks the Redis to which at leads, which may be nil, and unless that is the master asks the one to which a new
// connection leads. It returns the connection for the next time, nil if there is none.
func (a *Address) lookAgain(at *termConn) *termConn {
	ctx, cancel := context.WithTimeout(a.ctx, addressTime)
	defer cancel()
	present := a.role(ctx, at)
	if present == untold || present == master {
		a.noteRole(present)
		return at
	}
	next := a.dialMaster(ctx)
	there := a.role(ctx, next)
	if !a.followAddress(present, there) {
		next.Close()
		a.noteRole(present)
		return at
	}
	at.Close()
	a.noteRole(there)
	return next
}

// followAddress decides by the roles of the present Redis and of the one to which a new connection leads, whether that is the
// present one from now on.
func (a *Address) followAddress(present, there role) bool {
	switch {
	case present == unreachable && there != unreachable: // it may have been started again, and may be another
		a.Begin(a.target.Addr)
		return true
	case present == replica && there == master:
		former, _ := a.Now()
		a.endTerm(former)
		a.Announce()
		return true
	}
	return false
}

// dialMaster makes a connection to the address as the service account; nil: that failed.
func (a *Address) dialMaster(ctx context.Context) *termConn {
	c, err := connect(ctx, a.target, a.target.Service(), addressTime)
	if err != nil {
		return nil
	}
	return c.asOwn()
}

// role asks for the role by HELLO, which every user may run. A connection that gives no answer is of no use any more.
func (a *Address) role(ctx context.Context, c *termConn) role {
	if c == nil {
		return unreachable
	}
	deadline, _ := ctx.Deadline()
	reply, err := ask(ctx, c, deadline, "HELLO", "2", "SETNAME", "lockproxy")
	if err != nil {
		c.Close()
		return unreachable
	}
	return roleIn(reply)
}

// roleIn is the role that a reply to HELLO tells.
func roleIn(reply []byte) role {
	said, _ := resp.ParseReply(reply)
	switch field(said, "role") {
	case "master":
		return master
	case "replica", "slave":
		return replica
	}
	return untold
}

// field is what a reply to HELLO, which is a map or an array of pairs, says of name; "": nothing.
func field(hello resp.Reply, name string) string {
	for i := 1; i < len(hello.Elems); i += 2 {
		if string(hello.Elems[i-1].Text) == name {
			return string(hello.Elems[i].Text)
		}
	}
	return ""
}

// endTerm ends a term, because its Redis is a replica now.
func (a *Address) endTerm(t *Term) {
	if a.End(t, t.Addr, true, fmt.Errorf("the Redis to which %s led is a replica now", t.Addr)) {
		a.log.Warn("the address leads to another Redis, connections to the former one are closed", "addr", t.Addr)
	}
}

// noteRole keeps what the present Redis is, and logs a change.
func (a *Address) noteRole(now role) {
	switch before := role(a.present.Swap(int32(now))); {
	case before == now:
	case now == replica:
		a.log.Warn("the Redis at the address is a replica: it refuses writes until it is the master, "+
			"or the address leads to the master", "addr", a.target.Addr)
	case now == master && before == replica:
		a.log.Info("the Redis at the address is the master", "addr", a.target.Addr)
	}
}

var _ Resolver = (*Address)(nil)
