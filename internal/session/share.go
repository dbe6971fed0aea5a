package session

import (
	"slices"
	"strings"
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

// spared are the commands answered here that are not refused to a user who is over the share: what gives locks back or keeps them, and what
// says who the client is and what its next commands mean.
var spared = []string{
	"unlock", "multiunlock", "renew",
	"auth", "hello", "select", "reset", "quit", "post", "host:", "readonly", "readwrite", "asking",
	"client|setname", "client|setinfo", "client|capa", "client|reply", "client|no-evict", "client|no-touch", "client|id", "client|getname",
}

// isSpared says whether a command answered here is never refused for a share. Besides those that are listed this is what operators ask, and what
// a client in cluster mode asks before anything else.
func isSpared(c *commandtable.Command) bool {
	return slices.Contains(spared, c.Name) || strings.HasPrefix(c.Name, "lockproxy") || strings.HasPrefix(c.Name, "cluster")
}

// withinShare is c, or in place of one too many in this second what refuses it. What others depend on that come behind it, as on MULTI
// or SELECT, is counted only.
func (s *Session) withinShare(c *commandtable.Command, run answer) (*commandtable.Command, answer) {
	if s.access.user.Command() == nil {
		return c, run
	}
	if c != nil {
		switch c.Conn {
		case commandtable.ConnNone, commandtable.ConnBlock, commandtable.ConnWait:
			if run != nil && isSpared(c) {
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
