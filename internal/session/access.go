package session

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// access is what Redis lets a client do. Its client's goroutine alone uses it, but for login and operates.
type access struct {
	srv    *Server
	client *client.Client
	pipes  *backend.Forwarder

	state    atomic.Uint32 // a login
	operates atomic.Bool   // it has said LOCKPROXY, as an operator
}

var _ commands.Access = (*access)(nil)

// login is how far the client has come with logging in. Any goroutine may call it.
func (a *access) login() login { return login(a.state.Load()) }

// beginLogin has the client begin with logging in, or begin again.
func (a *access) beginLogin(fromElsewhere bool) {
	a.become(came(a.client.Peer.Operator, fromElsewhere, a.named()))
}

// named says that the client's certificate names a user that CertificateUser knows.
func (a *access) named() bool {
	if a.srv.o.CertificateUser == nil {
		return false
	}
	_, known := a.srv.o.CertificateUser(a.client.Peer.Certificate)
	return known
}

func (a *access) become(l login) {
	a.state.Store(uint32(l))
	a.client.Reader.SetUnauthenticated(l.small(a.srv.access.needs.now()))
}

// advance has an event happen to the client, and returns what its session has to do.
func (a *access) advance(e event) deed {
	after, do := a.login().on(e, a.srv.access.needs.now())
	a.become(after)
	return do
}

// Admitted returns why Redis does not serve this client; nil: it does. One that has authenticated is served. About
// another one Redis is asked, until it is served: from then on it stays in, as a connection to Redis does when a
// password is set. See docs/adr/0007.
func (a *access) Admitted() error {
	if a.login().in() {
		return nil
	}
	if must := a.login().mustLogIn; must(a.srv.access.needs.now()) && must(a.srv.freshNeed()) {
		return errNoAuth
	}
	if err := elsewhere(a.askAdmission); err != nil {
		return err
	}
	a.advance(redisServes)
	a.showIdentity()
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

// showIdentity opens a shared connection as the client's user. Redis closes it when the user is deleted, which shows
// that the client must be closed, however idle it is. If no connection can be made now, that shows at the client's next
// command.
func (a *access) showIdentity() {
	ctx, cancel := context.WithTimeout(a.client.Context(), backend.QuestionTime)
	defer cancel()
	a.pipes.Show(ctx)
}

// prepare does what logging in has to do before the client's next command.
func (s *Session) prepare(c *call) {
	a := &s.access
	do := a.advance(commandCame)
	if do == awaitNeed {
		s.srv.awaitNeed()
		if do = a.advance(waited); do == goOn {
			do = a.advance(commandCame)
		}
	}
	switch do {
	case deny:
		a.deny(deniedLine)
	case denyForNow:
		a.deny(deniedYet)
	case holdToLimits:
		a.holdToLimits(c)
	case logIn:
		s.byCertificate(c)
	}
}

// needChanged closes a client from another machine that has sent no command yet, once it is known that it may not stay.
func (a *access) needChanged() {
	if a.advance(needChanged) == deny {
		a.deny(deniedLine)
	}
}

func (a *access) deny(line string) {
	a.client.Write(resp.AppendError(nil, line)) // best effort
	a.client.Replies.Finish = true
	a.client.End.HangUp(downstream.Left, "protected mode")
}

// holdToLimits closes a client that must log in if its command is larger than Redis takes from one: it was read, at
// least in part, before RESET took effect, or before there was a password. Redis would close a connection that breaks
// its limits, and ours is shared.
func (a *access) holdToLimits(c *call) {
	if err := resp.UnauthenticatedLimits.Check(c.Args); err != nil {
		a.pipes.Send()
		a.client.Error("ERR " + err.Error())
		a.client.Flush()
		a.client.End.HangUp(downstream.Left, err.Error())
	}
}

// byCertificate logs the client in as the user whom its certificate names, or answers the present command with the
// error. That is not done before its first command, so that a silent connection costs Redis nothing. A client that Redis
// refuses is closed, because it believes to be a user that it is not.
func (s *Session) byCertificate(c *call) {
	name := s.client.Peer.Certificate
	password, known := s.srv.o.CertificateUser(name)
	if !known { // it may not be named any more
		s.access.beginLogin(false)
		return
	}
	err := s.Login(name, password)
	if err == nil {
		return
	}
	s.pipes.Send()
	s.client.Fail(err)
	if upstream.Refused(err) != nil && s.access.advance(refused) == end {
		s.srv.log.Warn("closed a client whose certificate names a user that could not be logged in", "client",
			s.client.Peer.Addr, "user", name, "error", err)
		s.client.Flush()
		s.client.End.HangUp(downstream.Left, err.Error())
	}
	c.over = true
}

// Ask runs one command that changes nothing, as the client's user, and returns Redis' reply as it came. After a
// lost reply the error is a *upstream.NotSentError, as if nothing had been asked, because nothing can have changed.
func (a *access) Ask(at backend.Destination, words ...[]byte) ([]byte, error) {
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

func bytesOf(words []string) [][]byte {
	all := make([][]byte, len(words))
	for i, w := range words {
		all[i] = []byte(w)
	}
	return all
}
