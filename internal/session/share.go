package session

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/share"
	"github.com/lockproxy/lockproxy/upstream"
)

// UserLimits are those of the clients of one user together; 0: no limit.
type UserLimits = share.Limits

// takeShare has become run for a client whose password Redis has taken, unless that user has too many clients. The client counts for the
// user when that has succeeded, and for whom it was if not.
func (s *Session) takeShare(user string, become func() error) error {
	if s.access.user.Name() == user {
		return become()
	}
	to, err := s.srv.users.Join(user)
	if err != nil {
		return &upstream.ReplyError{Line: "ERR " + err.Error()}
	}
	if err := become(); err != nil {
		s.srv.users.Leave(to)
		return err
	}
	s.countFor(to)
	return nil
}

// countFor has the client count for a user it has joined.
func (s *Session) countFor(to *share.User) {
	s.srv.users.Leave(s.access.user)
	s.access.user = to
	if l := s.locks.engine.Load(); l != nil {
		l.SetUser(to)
	}
}

// askingVerbs are those that are refused to a user who is over the share: those that give back, or keep, never are.
var askingVerbs = append([]string{"lockinfo", "locklist"}, lockingVerbs...)

// withinShare is c, or in place of one too many in this second what refuses it. What others depend on that come behind it, as on MULTI
// or SELECT, is counted only.
func (s *Session) withinShare(c *commandtable.Command, run answer) (*commandtable.Command, answer) {
	if s.access.user.Command() == nil {
		return c, run
	}
	if c != nil {
		switch c.Conn {
		case commandtable.ConnNone, commandtable.ConnBlock, commandtable.ConnWait:
			if run != nil && !slices.Contains(askingVerbs, c.Name) {
				return c, run
			}
		default:
			return c, run
		}
	}
	s.batch.refused++
	return commandtable.OverShare, func(s *Session, _ [][]byte) { s.error(commandtable.OverShare.Line) }
}

// A client that is refused would often ask again at once, and take the proxy's time for nothing: its next commands are read a little later.
const (
	refusedLeast = 10 * time.Millisecond
	refusedEach  = time.Millisecond // of a pipeline
	refusedMost  = 100 * time.Millisecond
)

// slowDown lets that time pass for a client of whose commands so many have been refused, at most until it is closed.
func (s *Session) slowDown(refused int) {
	if refused > 0 {
		retry.Sleep(s.clientContext(), min(max(refusedLeast, time.Duration(refused)*refusedEach), refusedMost), nil)
	}
}
