package upstream

import (
	"context"
	"errors"
	"slices"
)

// Redis lets a connection that was made while it asked for no password go on when one is set. Here many clients share
// such connections. So Redis is asked about each client that does not authenticate, once, as it is about each that
// does: only the answer that this client got says whether it may use them (Admit). A connection that does not
// authenticate is of use only if Redis serves it (served): one that is made while Redis asks for a password is refused,
// as one with a wrong password is.

// errRenewed is why Node.Renew ends connections.
var errRenewed = errors.New("made again because users have changed")

// servedCodes are errors in answer to PING that Redis gives only to clients that need not authenticate any more: it
// looks at that first.
var servedCodes = []string{"NOPERM", "MISCONF", "BUSY", "LOADING", "MASTERDOWN"}

// served asks whether Redis serves a connection after id's steps. AUTH and HELLO have said so.
func (id Identity) served() []step {
	if !id.Anonymous() || id.Proto == 3 {
		return nil
	}
	return []step{{[]string{"PING"}, refusalIn}}
}

// refusalIn returns the error by which Redis refuses a connection that has not authenticated, in answer to PING; nil:
// it serves it.
func refusalIn(reply []byte) error {
	re := Refused(ErrorIn(reply))
	if re == nil || slices.Contains(servedCodes, code(re.Line)) {
		return nil
	}
	return re
}

// errNoReset says that a Redis does not know RESET, as before 6.2.
var errNoReset = errors.New("no RESET is known to Redis")

// anew asks on a connection what Redis would answer to a new one that does not authenticate.
var anew = []step{
	{[]string{"RESET"}, func(reply []byte) error {
		if ErrorIn(reply) != nil {
			return errNoReset
		}
		return nil
	}},
	{[]string{"PING"}, refusalIn},
}

// Admit asks Redis, each time, whether it serves a client at that address that does not authenticate. The error is as
// that of Authenticate.
func (n *Node) Admit(ctx context.Context, address string) error {
	id := Identity{Proto: 2}
	return n.inTurn(ctx, address, func(ctx context.Context) error {
		err := n.askOn(ctx, id, anew)
		if !errors.Is(err, errNoReset) {
			return err
		}
		c, err := connect(ctx, n.target, id, n.opts.DialTimeout)
		if err == nil {
			n.auths.keepConn(c.asOwn(), id, nil)
		}
		return err
	})
}

// Renew replaces the connections of the identities for which concerned returns true. Requests under way are answered
// first; later ones go over new connections, or get Redis' refusal. Of the dedicated connections only the idle ones
// end.
func (n *Node) Renew(concerned func(Identity) bool) {
	n.eachLink(func(id Identity, l *link) {
		if concerned(id) {
			l.retire(errRenewed)
		}
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.dropOldest(func(c keeps) bool { p, is := c.(*Dedicated); return is && concerned(p.Identity) }) {
	}
}
