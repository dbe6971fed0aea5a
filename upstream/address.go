package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	addressEvery = time.Second            // how often the Redis at an address is asked for its role
	addressGap   = 200 * time.Millisecond // the shortest time between two such questions
	addressTime  = time.Second            // for an answer, connection included
)

// role is what a Redis says that it is.
type role int

const (
	unreachable role = iota
	untold           // it answers something else
	master
	replica
)

// Address is the Resolver of a Target that names its Redis by an address: a DNS name, a Kubernetes service, a virtual IP. A failover may
// move the address to another Redis while the former master lives on as a replica, with all connections to it. So the Redis that the
// connections lead to is asked for its role once a second, and at each READONLY. When it has become a replica, and a new connection leads
// to a master, all connections end, and are made again.
type Address struct {
	target  Target // has no Resolver
	log     *slog.Logger
	ctx     context.Context // ends when it is closed
	stop    context.CancelFunc
	running sync.WaitGroup
	again   chan struct{} // one slot: ask now

	mu      sync.Mutex // guards all below
	now     *addressTerm
	moved   chan struct{}
	moves   int64
	hooks   []func()
	present role // what the Redis at the address said last
}

// addressTerm belongs to the connections that were made while the role was asked over one and the same connection. When that connection is
// lost, those that were made before may lead to another Redis than the next one: their term goes on, and ends at their first READONLY.
type addressTerm struct {
	context.Context
	end context.CancelCauseFunc
}

func newAddressTerm() *addressTerm {
	ctx, end := context.WithCancelCause(context.Background())
	return &addressTerm{ctx, end}
}

// FollowAddress watches t's address from now on, until Close, and sets t.Resolver. Call it once, when t is complete. log nil is slog.Default().
func FollowAddress(t *Target, log *slog.Logger) *Address {
	if log == nil {
		log = slog.Default()
	}
	a := &Address{target: *t, log: log, again: make(chan struct{}, 1), now: newAddressTerm(), moved: make(chan struct{})}
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
	a.mu.Lock()
	now := a.now
	a.mu.Unlock()
	conn, err := Dial(ctx, a.target, timeout)
	if err != nil {
		return nil, nil, err
	}
	return conn, now, nil
}

// Present implements Resolver.
func (a *Address) Present() (addr string, switches int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.target.Addr, a.moves
}

// Moved implements Resolver.
func (a *Address) Moved() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.moved
}

// OnSwitch implements Resolver.
func (a *Address) OnSwitch(hook func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hooks = append(a.hooks, hook)
}

// Doubt implements Resolver.
func (a *Address) Doubt(term context.Context) {
	a.mu.Lock()
	if t, is := term.(*addressTerm); is && t != a.now {
		a.end(t)
	}
	a.mu.Unlock()
	retry.Wake(a.again)
}

// RefusesWrites says why Redis refuses writes: the one at the address is a replica; nil: it was no replica when it was asked last.
func (a *Address) RefusesWrites() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.present == replica {
		return errors.New("the Redis at the address is a replica, and refuses writes")
	}
	return nil
}

// watch is the goroutine that asks for the role.
func (a *Address) watch() {
	defer a.running.Done()
	var at *ownConn
	for a.ctx.Err() == nil {
		at = a.look(at)
		retry.Sleep(a.ctx, addressGap, nil)
		retry.Sleep(a.ctx, addressEvery-addressGap, a.again)
	}
	at.Close()
}

// look asks the Redis to which at leads, which may be nil, and unless that is the master asks the one to which a new connection leads. It
// returns the connection for the next time, nil if there is none.
func (a *Address) look(at *ownConn) *ownConn {
	ctx, cancel := context.WithTimeout(a.ctx, addressTime)
	defer cancel()
	present := a.role(ctx, at)
	if present == untold || present == master {
		a.note(present)
		return at
	}
	next := a.connect(ctx)
	there := a.role(ctx, next)
	if !a.follow(present, there) {
		next.Close()
		a.note(present)
		return at
	}
	at.Close()
	a.note(there)
	return next
}

// follow decides by the roles of the present Redis and of the one to which a new connection leads, whether that is the present one from now
// on.
func (a *Address) follow(present, there role) bool {
	switch {
	case present == unreachable && there != unreachable: // it may have been started again, and may be another
		a.begin()
		return true
	case present == replica && there == master:
		a.move()
		return true
	}
	return false
}

// connect makes a connection to the address as the service account; nil: that failed.
func (a *Address) connect(ctx context.Context) *ownConn {
	conn, term, err := Connect(ctx, a.target, a.target.Service(), addressTime)
	if err != nil {
		return nil
	}
	return newOwn(conn, term)
}

// role asks for the role by HELLO, which every user may run. A connection that gives no answer is of no use any more.
func (a *Address) role(ctx context.Context, c *ownConn) role {
	if c == nil {
		return unreachable
	}
	deadline, _ := ctx.Deadline()
	reply, err := Ask(ctx, c, deadline, "HELLO", "2", "SETNAME", cmp.Or(a.target.ClientName, "lockproxy"))
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

// begin begins another term, and lets the former one's connections be.
func (a *Address) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = newAddressTerm()
}

// move ends all connections: those that are made from now on lead to another Redis.
func (a *Address) move() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(a.now)
	a.now = newAddressTerm()
	close(a.moved)
	a.moved = make(chan struct{})
}

// end ends the connections of a term; mu is held. The hooks are called when no reply of theirs counts any more.
func (a *Address) end(t *addressTerm) {
	if t.Err() != nil {
		return
	}
	t.end(fmt.Errorf("the Redis to which %s led is a replica now", a.target.Addr))
	for _, hook := range a.hooks {
		hook()
	}
	a.moves++
	telemetry.MasterSwitches.Add(1)
	a.log.Warn("the address leads to another Redis, connections to the former one are closed", "addr", a.target.Addr)
}

// note keeps what the present Redis is, and logs a change.
func (a *Address) note(r role) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case r == replica && a.present != replica:
		a.log.Warn("the Redis at the address is a replica: it refuses writes until it is the master, or the address leads to the master", "addr", a.target.Addr)
	case r == master && a.present == replica:
		a.log.Info("the Redis at the address is the master", "addr", a.target.Addr)
	}
	a.present = r
}

var _ Resolver = (*Address)(nil)
