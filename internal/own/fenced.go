package own

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/fenced"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// fencedTries is how often FENCED looks at a lock that is changed while it does, by a renewal for instance.
const fencedTries = 5

var (
	errFencedWatch   = &lock.Error{Code: "ERR", Text: "FENCED between WATCH and MULTI: it would end that WATCH; send UNWATCH first, nothing was run"}
	errFencedChanged = &lock.Error{Code: "ERR", Text: "nothing was run: the lock was changed each of the " + strconv.Itoa(fencedTries) + " times it was looked at; try again"}
)

// Fenced runs a command if Redis says that the lock is held as r asks, in one atomic step: on a connection of this client's alone the
// lock is WATCHed and looked at, and the command is run by MULTI and EXEC, which Redis refuses when the lock has changed since, or run
// out. What EXEC answers is passed on without its head. nil: the client has its reply.
func (o *Connections) Fenced(r lock.HoldRequest, c *commandtable.Command, args [][]byte) error {
	defer o.release()
	return o.path.fenced(o.current(), r, c, args)
}

// fence returns the Fence of a FENCED, still without a connection.
func (o *Connections) fence(r lock.HoldRequest, c *commandtable.Command, args [][]byte) *fenced.Fence {
	return &fenced.Fence{Request: r, Command: c, Args: args, Proto: o.host.Identity().Proto, Holds: o.host.Locks().ReadHoldsHere(r)}
}

// fencedAt tries f once, on p.
func (p *conn) fencedAt(f *fenced.Fence) (done bool, err error) {
	if p.o.Common.Echoes(f.Command) {
		p.Taint()
	}
	f.Host, f.Conn = fenceHost{p.o.host, p}, p.Conn
	return f.Try()
}

// fenced runs it on the client's own connection, or one that it gets for this.
func (u *single) fenced(p *conn, r lock.HoldRequest, c *commandtable.Command, args [][]byte) (err error) {
	if err := u.host.Locks().Lost(r); err != nil {
		return err
	}
	f := u.fence(r, c, args)
	if p == nil {
		if p, err = u.open(); err != nil {
			u.host.Trouble(err)
			return err
		}
	}
	now := p.Status()
	if now.Watch {
		return errFencedWatch
	}
	f.Tracking, f.Caching = now.Tracking, now.Caching
	for range fencedTries {
		if done, err := p.fencedAt(f); done || err != nil {
			return err
		}
	}
	return errFencedChanged
}

// fenceHost is what a FENCED asks of its client: see fenced.Host.
type fenceHost struct {
	Host
	p *conn
}

var _ fenced.Host = fenceHost{}

// Ask implements fenced.Host.
func (h fenceHost) Ask(words ...string) ([]byte, error) {
	all := make([][]byte, len(words))
	for i, w := range words {
		all[i] = []byte(w)
	}
	return h.Host.Ask(all...)
}

// Reply implements fenced.Host.
func (h fenceHost) Reply(reply []byte) { h.p.o.relay(reply) }

// Sending implements fenced.Host.
func (h fenceHost) Sending(c *commandtable.Command, args [][]byte) { h.p.noteChanges(c, args) }

// Abandon implements fenced.Host.
func (h fenceHost) Abandon(hangUp bool, why string) {
	if o := h.p.o; o.conn == h.p {
		o.drop()
	} else {
		h.p.drop()
	}
	if hangUp {
		h.p.o.client.HangUp(downstream.Left, why)
	}
}
