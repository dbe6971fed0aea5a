package session

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/share"
	"github.com/lockproxy/lockproxy/upstream"
)

// UserLimits are those of the clients of one user together; 0: no limit.
type UserLimits = share.Limits

// takeShare runs become for a client whose password Redis has accepted, unless user has too many clients. After that
// the client is counted for user if become has succeeded, else for its former user still.
func (s *Session) takeShare(user string, become func() error) error {
	if s.access.user.Name() == user {
		return become()
	}
	to, err := s.srv.users.Join(user)
	if err != nil {
		s.srv.noteOverShare(s.client, user, err)
		return &upstream.ReplyError{Line: "ERR " + err.Error()}
	}
	if err := become(); err != nil {
		s.srv.users.Leave(to)
		return err
	}
	s.countFor(to)
	return nil
}

// countFor counts the client for a user whom it has joined, and no longer for its former one.
func (s *Session) countFor(to *share.User) {
	s.srv.users.Leave(s.access.user)
	s.access.user = to
	if l := s.engine(); l != nil {
		l.SetUser(to)
	}
}

// withinShare refuses a command that is one too many in this second. What is not refused waits for its turn, so that no
// command is free of charge.
func (s *Session) withinShare(c *call) {
	over := s.access.user.Command()
	if over == nil {
		return
	}
	if c.row == nil || c.row.MayRefuse() {
		s.srv.noteOverShare(s.client, s.client.User(), over)
		s.batch.refused++
		c.refuse(commandtable.OverShare, func(s *Session, _ [][]byte) { s.client.Error(commandtable.OverShare.Line) })
		return
	}
	turn := s.access.user.Owe()
	s.standStill(func(ctx context.Context) { retry.Sleep(ctx, turn, nil) })
}

// noteOverShare tells that a client is refused because its user has all that it may have.
func (s *Server) noteOverShare(c *client.Client, user string, why error) {
	e := eventOf(events.Refusal, c, why.Error())
	e.User = user
	s.o.Events.Add(e)
}

// A client that is refused would often ask again at once, and take the proxy's time for nothing: its next commands are
// read a little later.
const (
	refusedLeast = 10 * time.Millisecond
	refusedEach  = time.Millisecond // of a pipeline
	refusedMost  = 100 * time.Millisecond
)

// slowDown delays a client of whose last commands so many have been refused, at most until it is closed.
func (s *Session) slowDown(refused int) {
	if refused > 0 {
		retry.Sleep(s.client.Context(), min(max(refusedLeast, time.Duration(refused)*refusedEach), refusedMost), nil)
	}
}
