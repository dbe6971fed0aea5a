package own

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/fenced"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// fencedTries is how often FENCED looks at a lock that is changed while it does, by a renewal for instance.
const fencedTries = 5

var (
	errFencedWatch   = &lock.Error{Code: "ERR", Text: "FENCED between WATCH and MULTI: it would end that WATCH; send UNWATCH first, nothing was run"}
	errFencedChanged = &lock.Error{Code: "ERR", Text: "nothing was run: the lock was changed each of the " + strconv.Itoa(fencedTries) + " times it was looked at; try again"}
)

// Fenced runs a command if Redis says that the lock is held as r asks, by locks, in one atomic step: on a connection
// of this client's alone the lock is WATCHed and looked at, and the command is run by MULTI and EXEC, which Redis
// refuses when the lock has changed since, or run out. What EXEC answers is passed on without its head. nil: the
// client has its reply.
func (o *Connections) Fenced(locks *lock.Client, r lock.HoldRequest, c *commandtable.Command, args [][]byte) error {
	return o.path.fenced(o.current(), &fenced.Fence{Client: o.client, Forwarder: o.forwarder, Locks: locks, Request: r, Command: c, Args: args, Holds: locks.ReadHoldsHere(r)})
}

// fencedAt tries f once, on p.
func (p *conn) fencedAt(f *fenced.Fence) (done bool, err error) {
	f.Host, f.Conn = p, p.Conn
	return f.Try()
}

// fenced runs it on the client's own connection, or one that it gets for this.
func (u *single) fenced(p *conn, f *fenced.Fence) (err error) {
	if err := f.Locks.Lost(f.Request); err != nil {
		return err
	}
	if p == nil {
		if p, err = u.open(); err != nil {
			u.Trouble(err)
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
