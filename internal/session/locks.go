package session

import (
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// Locks returns the lock engine's client, which the first call makes.
func (s *Session) Locks() *lock.Client {
	if l := s.locks.Load(); l != nil {
		return l
	}
	c := s.client
	l := s.srv.o.Locks.NewClient(lock.ClientInfo{
		ID: c.Number, Addr: c.Peer.Addr, Name: c.Name, User: c.User, Push: s.pushes.queueLoss, Gone: c.End.ClientGone,
		Close: func(why string) { c.End.Cut(downstream.Left, why) },
	})
	l.SetUser(s.counted())
	s.locks.Store(l)
	c.HasLocks(l)
	return l
}

// counted is for whom the client's locks count. Those of one address that have not logged in count together, so that strangers
// take nothing from the clients of other addresses.
func (s *Session) counted() lock.User {
	if id := s.client.Identity(); !id.Anonymous() {
		return lock.User{Name: client.UserName(id.User)}
	}
	return lock.User{Address: networkOf(s.client.Peer.Addr)}
}
