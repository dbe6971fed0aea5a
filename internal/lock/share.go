package lock

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// errShare is told to a client whose user has as many locks as one may have.
var errShare = &Error{Code: "ERR", Text: "max number of locks per user reached"}

// User is for whom a client's locks count: the one as whom it has logged in, or else all clients of its address that have
// not logged in.
type User struct{ Name, Address string }

// shares count the locks that the clients of each user hold, or ask for.
type shares struct {
	log  *slog.Logger
	most atomic.Int64 // of one user; 0: no limit

	mu    sync.Mutex // a leaf
	locks map[User]int64
}

// count counts n more locks, or with n below 0 fewer.
func (s *shares) count(of User, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks[of] += n; s.locks[of] == 0 {
		delete(s.locks, of)
	}
}

// ask counts a lock that is asked for, unless the user has as many as one may have.
func (s *shares) ask(of User) error {
	s.mu.Lock()
	n, most := s.locks[of], s.most.Load()
	full := most > 0 && n >= most
	if !full {
		s.locks[of] = n + 1
	}
	s.mu.Unlock()
	if full {
		s.log.Warn("a user is over its share", "user", of.Name, "address", of.Address, "locks", n)
		return errShare
	}
	return nil
}

// share is whom one client's locks count for. The client's verbs come one after the other.
type share struct {
	of   *shares
	user User
	asks atomic.Bool // a verb asks for a lock, which counts already
}

// ask counts a lock that is asked for, once for each verb. It is answered, whatever comes of it.
func (s *share) ask() error {
	if s.asks.Load() {
		return nil
	}
	err := s.of.ask(s.user)
	s.asks.Store(err == nil)
	return err
}

// answered says that ask's lock was granted or refused.
func (s *share) answered() {
	if s.asks.Swap(false) {
		s.of.count(s.user, -1)
	}
}

// hold counts a lock that the client has now; the one that it asks for counts already.
func (s *share) hold() {
	if !s.asks.Swap(false) {
		s.of.count(s.user, 1)
	}
}

// leave counts a lock no more that the client has had.
func (s *share) leave() { s.of.count(s.user, -1) }

// move has the client's locks, so many of them, count for another user.
func (s *share) move(to User, locks int) {
	s.of.count(s.user, -int64(locks))
	s.user = to
	s.of.count(to, int64(locks))
}
