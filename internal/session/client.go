package session

import (
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// What clients see of one another, and do to one another: see commands.Neighbours.

// Facts implements commands.Neighbours; asking is nil if another client asks. Any goroutine may call it.
func (s *Session) Facts(asking [][]byte) commands.ClientFacts {
	v, now := &s.own.View, time.Now()
	last := ""
	if said := s.activity.last.Load(); said != nil {
		last = *said
	}
	query := 0
	if asking != nil {
		query = len(resp.Command(asking))
	}
	id, said := s.client.IdentityNow(), s.client.Said()
	return commands.ClientFacts{
		ID: s.client.Number, Addr: s.client.Addr(), LAddr: s.client.LocalName(), Name: said.Name, User: client.UserName(id.User), Library: said.Library,
		DB: id.DB, Proto: id.Proto, Age: now.Sub(s.client.Opened()), Idle: now.Sub(time.Unix(0, s.activity.active.Load())),
		Last: last, Query: query,
		ClientState: commands.ClientState{
			Channels: v.Channels.Load(), Patterns: v.Patterns.Load(), Shards: v.Shards.Load(),
			Queued: v.Multi.Load() - 1, Watched: v.Watched.Load(), Blocked: s.activity.waiting.Load() != nil || v.Blocked.Load() || s.own.Waits.Blocked.Load(),
			Tracks: v.Tracking.On.Load(), Broadcasts: v.Tracking.BCast.Load(), Redirect: v.Redirected(),
			Monitors: v.Monitor.Load(), Unix: s.client.Unix(), NoEvict: said.NoEvict, NoTouch: said.NoTouch,
		},
	}
}

// Clients implements commands.Neighbours.
func (s *Session) Clients(asking [][]byte) (all []commands.ClientFacts) {
	for _, c := range s.srv.snapshot() {
		if c == s {
			all = append(all, s.Facts(asking))
		} else {
			all = append(all, c.Facts(nil))
		}
	}
	return all
}

// Fields implements commands.Neighbours.
func (s *Session) Fields() commands.ClientFields {
	if told := s.srv.facts.fields.Load(); told != nil {
		return *told
	}
	return nil
}

// LearnFields implements commands.Neighbours. A client has asked as itself, so that the service account needs neither CLIENT INFO
// nor CLIENT LIST.
func (s *Session) LearnFields(fields commands.ClientFields) {
	if fields != nil {
		s.srv.facts.fields.Store(&fields)
	}
}

// Kill implements commands.Neighbours.
func (s *Session) Kill(f commands.KillFilter) (killed int, itself bool) {
	for _, c := range s.srv.snapshot() {
		if !f.Matches(c.Facts(nil)) || c == s && f.SkipMe || c.client.Over() {
			continue
		}
		killed++
		if c == s {
			itself = true
			continue
		}
		c.client.Cut(downstream.Left, "CLIENT KILL")
	}
	return killed, itself
}

// Unblock implements commands.Neighbours.
func (s *Session) Unblock(id int64, fails bool) ([]byte, error) {
	cause, how := lock.ErrNotAcquired, "TIMEOUT"
	if fails {
		cause, how = commands.ErrUnblocked, "ERROR"
	}
	c := s.srv.session(id)
	if c == nil {
		return resp.AppendInt(nil, 0), nil
	}
	if c.wake(cause) {
		return resp.AppendInt(nil, 1), nil
	}
	for _, v := range []*dedicated.View{&c.own.View, &c.own.Waits} {
		v.Named.Add(1)
		defer v.Named.Add(-1)
		if v.Blocked.Load() && v.RedisID.Load() != 0 {
			words := []string{"CLIENT", "UNBLOCK", strconv.FormatInt(v.RedisID.Load(), 10), how}
			return s.askAt(backend.AtNode(v.Node.Load()), bytesOf(words)...)
		}
	}
	return resp.AppendInt(nil, 0), nil
}
