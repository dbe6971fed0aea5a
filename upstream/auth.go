package upstream

import (
	"context"
	"net"
)

// Authenticate asks Redis, each time, whether user may log in with password.
// User "" is the one-argument AUTH. The error is a *ReplyError with Redis' own
// words when it refuses, a *NotSentError when no answer could be had; ctx's end
// is the latter.
//
// All calls share one connection, one after the other. It may be logged in as
// anybody: AUTH is allowed to all. It carries nothing else.
func (n *Node) Authenticate(ctx context.Context, user, password string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.ctx, func() { cancel(ErrClosed) })()

	select {
	case n.auxTurn <- struct{}{}:
		defer func() { <-n.auxTurn }()
	case <-ctx.Done():
		return &NotSentError{Cause: context.Cause(ctx)}
	}
	err := n.authenticate(ctx, appendAuth(nil, user, password))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && refused(err) == nil:
		return &NotSentError{Cause: context.Cause(ctx)}
	}
	return notSent(err)
}

// authenticate has n.auxTurn. Redis closes the connection when it likes, also
// because the user it was last logged in as was deleted: then a fresh one is
// tried, once. To send AUTH twice does no harm.
func (n *Node) authenticate(ctx context.Context, auth []byte) error {
	if n.aux != nil && n.auxTenure.Err() != nil {
		n.closeAux()
	}
	if n.aux != nil {
		err := n.askAux(ctx, auth)
		if err == nil || refused(err) != nil || ctx.Err() != nil {
			return err
		}
	}
	conn, tenure, err := reach(ctx, n.target, n.opts.DialTimeout)
	if err != nil {
		return err
	}
	n.aux, n.auxTenure, n.auxLeft = conn, tenure, closeAfter(tenure, conn)
	return n.askAux(ctx, auth)
}

// askAux sends one AUTH and keeps the connection if it is still of use.
func (n *Node) askAux(ctx context.Context, auth []byte) error {
	err := ask(ctx, n.aux, auth, 1)
	if err != nil && refused(err) == nil {
		n.closeAux()
	}
	return err
}

func (n *Node) closeAux() {
	var conn net.Conn
	if conn, n.aux = n.aux, nil; conn != nil {
		n.auxLeft()
		conn.Close()
	}
}
