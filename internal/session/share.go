package session

import (
	"context"
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

// takeShare runs become for a client whose password Redis has accepted, unless user has too many clients. After that the client is
// counted for user if become has succeeded, else for its former user still.
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

// countFor counts the client for a user whom it has joined, and no longer for its former one.
func (s *Session) countFor(to *share.User) {
	s.srv.users.Leave(s.access.user)
	s.access.user = to
	if l := s.engine(); l != nil {
		l.SetUser(to)
	}
}

// unrefused are the commands answered here that are not refused to a user who is over the share, but wait for their turn: what gives locks back or keeps
// them, and what says who the client is and what its next commands mean.
var unrefused = []string{
	"unlock", "multiunlock", "renew",
	"auth", "hello", "select", "reset", "quit", "post", "host:", "readonly", "readwrite", "asking",
	"client|setname", "client|setinfo", "client|capa", "client|reply", "client|no-evict", "client|no-touch", "client|id", "client|getname",
}

// mayRefuse says whether a command may be refused for a share. It may not if later ones depend on it, such as MULTI or SELECT. Besides those listed these
// are LOCKPROXY, which operators use, and CLUSTER, with which a client in cluster mode begins.
func mayRefuse(c *commandtable.Command, here bool) bool {
	if c == nil {
		return true
	}
	switch c.Conn {
	case commandtable.ConnNone, commandtable.ConnBlock, commandtable.ConnWait:
		name, _, _ := strings.Cut(c.Name, "|")
		return !here || !slices.Contains(unrefused, c.Name) && name != "lockproxy" && name != "cluster"
	}
	return false
}

// withinShare refuses a command that is one too many in this second. What is not refused waits for its turn, so that no command
// is free of charge.
func (s *Session) withinShare(c *call) {
	if s.access.user.Command() == nil {
		return
	}
	if mayRefuse(c.row, c.answer != nil) {
		s.batch.refused++
		c.refuse(commandtable.OverShare, func(s *Session, _ [][]byte) { s.client.Error(commandtable.OverShare.Line) })
		return
	}
	turn := s.access.user.Owe()
	s.standStill(func(ctx context.Context) { retry.Sleep(ctx, turn, nil) })
}

// A client that is refused would often ask again at once, and take the proxy's time for nothing: its next commands are read a little later.
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
