package session

import (
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// The connection to the client asks this of its session.
var _ downstream.Client = (*Session)(nil)

// closeHow says to the lock engine how a connection has ended.
func closeHow(how downstream.How) lock.CloseHow {
	if how == downstream.Gone {
		return lock.Gone
	}
	return lock.Left
}

// Notified does what other sessions ask of this one, and gives back what it does not need any more.
func (s *Session) Notified() {
	s.access.needChanged()
	if s.own.Requested() {
		s.own.ServeRequest(s.access.Admitted())
	}
	s.own.Notified()
	s.client.Step.Rest()
}

// MayIdle says whether the client may be silent for as long as it likes, as those that wait for something may in Redis.
func (s *Session) MayIdle() bool { return s.own.View.Hears() || s.client.Held() > 0 }

// Subscribed says that the client waits for messages.
func (s *Session) Subscribed() bool { return s.own.View.Subscribed() }

// Ahead looks for a QUIT or RESET directly behind the lock verb that waits, and ends its wait.
func (s *Session) Ahead(begun []byte) {
	if len(s.batch.next) == 0 && isLeave(begun) {
		s.wakeWait(lock.ErrNotAcquired)
	}
}

// wakeWait ends the wait of a lock verb, if there is one.
func (s *Session) wakeWait(cause error) bool {
	cancel := s.activity.waiting.Load()
	if cancel != nil {
		(*cancel)(cause)
	}
	return cancel != nil
}

// Wait runs run with a context that ends when the client goes away, is killed, or is cut off by a drain. Once run waits
// for that, the replies so far are flushed, and what the client pipelines is kept for later.
//
// CLIENT UNBLOCK ends that context too: its cause is then what the verb answers. So does a QUIT or RESET sent directly
// behind the verb.
func (s *Session) Wait(run func(ctx context.Context)) {
	s.client.WatchWaits(func(ctx context.Context, cancel context.CancelCauseFunc) {
		s.activity.waiting.Store(&cancel)
		defer s.activity.waiting.Store(nil)
		if len(s.batch.next) > 0 && isLeave(s.batch.next[0].Raw) {
			cancel(lock.ErrNotAcquired)
		}
		run(ctx)
	})
}

// isLeave recognises a QUIT or RESET, as clients send it, at the beginning of b.
func isLeave(b []byte) bool {
	return slices.ContainsFunc(leaveLines, func(line string) bool {
		return equalFold(b[:min(len(line), len(b))], line)
	})
}

var leaveLines = []string{"*1\r\n$4\r\nQUIT\r\n", "*1\r\n$5\r\nRESET\r\n", "QUIT\r\n", "RESET\r\n", "QUIT\n", "RESET\n"}

// facts are what other clients see. Any goroutine may call it.
func (s *Session) facts() commands.ClientFacts {
	v, now := &s.own.View, time.Now()
	last := ""
	if said := s.activity.last.Load(); said != nil {
		last = *said
	}
	id, said := s.client.IdentityNow(), s.client.Said()
	return commands.ClientFacts{
		ID: s.client.Number, Addr: s.client.Peer.Addr, LAddr: s.client.Peer.LocalAddr, Name: said.Name,
		User: client.UserName(id.User), Library: said.Library,
		DB: id.DB, Proto: id.Proto, Age: now.Sub(s.client.Peer.Opened),
		Idle: now.Sub(time.Unix(0, s.activity.active.Load())), Last: last,
		ClientState: commands.ClientState{
			Channels: v.Channels.Load(), Patterns: v.Patterns.Load(), Shards: v.Shards.Load(),
			Queued: v.Multi.Load() - 1, Watched: v.Watched.Load(),
			Blocked: s.own.Blocked() || s.activity.waiting.Load() != nil,
			Tracks:  v.Tracking.On.Load(), Broadcasts: v.Tracking.BCast.Load(), Redirect: v.Redirected(),
			Monitors: v.Monitor.Load(), Unix: s.client.Peer.Unix, NoEvict: said.NoEvict, NoTouch: said.NoTouch,
		},
	}
}
