package own

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/fenced"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// fencedTries is how often FENCED looks at a lock that is changed while it does, by a renewal for instance.
const fencedTries = 5

var errFencedChanged = &lock.Error{Code: "ERR", Text: "nothing was run: the lock was changed each of the " + strconv.Itoa(fencedTries) + " times it was looked at; try again"}

// Fenced runs a command if Redis says that the lock is held as r asks, by locks, in one atomic step: on a connection
// beside the client's own the lock is WATCHed and looked at, and the command is run by MULTI and EXEC, which Redis
// refuses when the lock has changed since, or run out. What EXEC answers is passed on without its head. nil: the
// client has its reply.
func (o *Connections) Fenced(locks *lock.Client, r lock.HoldRequest, c *commandtable.Command, args [][]byte) error {
	return o.path.fenced(&fenced.Fence{Locks: locks, Request: r, Command: c, Args: args, Holds: locks.ReadHoldsHere(r)})
}

// fencedAt tries f once, on p, whose use ends with that.
func (p *conn) fencedAt(f *fenced.Fence) (done bool, err error) {
	defer p.endAside()
	f.Conn, f.Sending = p.Conn, p.note
	return f.Try()
}

func (u *single) fenced(f *fenced.Fence) error {
	for range fencedTries {
		if err := f.Locks.Lost(f.Request); err != nil {
			return err
		}
		p, err := u.connectAs(u.client.Identity(), new(dedicated.View))
		if err != nil {
			u.Trouble(err)
			return err
		}
		if done, err := p.fencedAt(f); done || err != nil {
			return err
		}
	}
	return errFencedChanged
}
