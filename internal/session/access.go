package session

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// access is what Redis lets a client do. Its client's goroutine alone uses it, but for admitted.
type access struct {
	srv    *Server
	client *client.Client
	pipes  *backend.Forwarder

	remote   bool                      // it came from another machine, and protected mode has yet to let it stay
	due      func(s *Session, c *call) // comes before the next command: fitsLowered or byCertificate; nil: nothing
	admitted atomic.Bool               // Redis serves it although it has not authenticated: see Admitted
}

var _ commands.Access = (*access)(nil)

// Admitted returns why Redis does not serve this client; nil: it does. One that has authenticated is served. About
// another one Redis is asked, until it is served: from then on it stays in, as a connection to Redis does when a
// password is set. See docs/adr/0007.
func (a *access) Admitted() error {
	if a.admitted.Load() || !a.client.Identity().Anonymous() || a.client.Peer.Operator {
		return nil
	}
	if a.srv.access.mustAuth.Load() && a.srv.asksPassword() {
		return errNoAuth
	}
	if err := elsewhere(a.askAdmission); err != nil {
		return err
	}
	a.admitted.Store(true)
	a.client.Reader.SetLimits(a.srv.limitsFor(true))
	a.showToRedis()
	return nil
}

// askAdmission asks Redis whether it serves this client. In a script's first seconds Redis answers nobody: SCRIPT KILL
// must wait for that, and not fail.
func (a *access) askAdmission() error {
	ctx, cancel := context.WithTimeoutCause(a.client.Context(), admissionTime, upstream.ErrTimeout)
	defer cancel()
	for {
		err := a.srv.admission(ctx, hostOf(a.client.Peer.Addr))
		if late, is := errors.AsType[net.Error](err); !is || !late.Timeout() || ctx.Err() != nil {
			return err
		}
	}
}

// showToRedis opens a shared connection as the client's user. Redis closes it when the user is deleted, which shows
// that the client must be closed, however idle it is. If no connection can be made now, that shows at the client's next
// command.
func (a *access) showToRedis() {
	ctx, cancel := context.WithTimeout(a.client.Context(), backend.QuestionTime)
	defer cancel()
	a.pipes.Show(ctx)
}

// must says that Redis asks for a password, and that this client has neither sent one nor been served before.
func (a *access) must() bool {
	return a.srv.access.mustAuth.Load() && !a.admitted.Load() && a.client.Identity().Anonymous() && !a.client.Peer.Operator
}

// Ask runs one command that changes nothing, as the client's user, and returns Redis' reply as it came. After a
// lost reply the error is a *upstream.NotSentError, as if nothing had been asked, because nothing can have changed.
func (a *access) Ask(at backend.Place, words ...[]byte) ([]byte, error) {
	if a.client.Peer.Operator {
		return resp.AppendArray(nil, 0), nil // nothing is known, and nothing refused
	}
	if err := a.Admitted(); client.LogIn(err) {
		return resp.AppendError(nil, noAuth), nil
	} else if err != nil {
		return nil, err
	}
	return a.pipes.Ask(words, at)
}

// certificate notes that the client is to be logged in as the user whom its certificate names, if CertificateUser knows
// that user.
func (a *access) certificate() {
	if a.srv.o.CertificateUser == nil {
		return
	}
	if _, known := a.srv.o.CertificateUser(a.client.Peer.Certificate); known {
		a.due = (*Session).byCertificate
		a.client.Reader.SetLimits(a.srv.limitsFor(true))
	}
}

func bytesOf(words []string) [][]byte {
	all := make([][]byte, len(words))
	for i, w := range words {
		all[i] = []byte(w)
	}
	return all
}
