package session

import (
	"errors"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Redis ends its clients' connections when it goes away. Libraries know what to do then: they connect again, and send again
// what may be sent again. An error they only pass to the application. So a client is closed where Redis would have closed it:
// when one of its commands has no reply because the connection upstream broke, or could not be made. Its commands before that
// have their replies. A client that holds locks, or does not know yet that it has lost one, is not closed, because its locks
// would end with its connection: it gets an error in place of each reply, and for what else was lost see internal/own. The
// lock verbs always answer with errors of their own. See docs/adr/0018-a-lost-connection-looks-like-one.md.

// closesFor says whether the client is closed, without a reply, for a command that failed with err.
func (s *Session) closesFor(err error) bool {
	return backend.Lost(err) && !errors.Is(err, upstream.ErrTimeout) && s.lockless()
}

// lockless says that the client holds no locks, and knows of all that it has lost.
func (s *Session) lockless() bool {
	return s.held() == 0 && !s.locks.untold.Load() // in this order: a lock is lost before the session is told
}

// fail answers a command that failed with err, or closes the client.
func (s *Session) fail(err error) { s.batch.Out = s.Fail(s.batch.Out, err) }

// Fail implements commands.Connection.
func (s *Session) Fail(out []byte, err error) []byte {
	if s.closesFor(err) {
		s.guard.HangUp(downstream.Left, backend.WhyLost(err))
		s.replies.finish = true
		return out
	}
	return resp.AppendError(out, backend.ErrorLine(err))
}
