package session

import (
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// pushQueue bounds what waits for a client that does not read. Losses beyond it are not pushed; the verbs tell them.
const pushQueue = 128

// push queues the news of a lost lock for a client that can take it. It never blocks: a pusher is started when
// there is something to write, and goes when there is nothing more.
func (s *Session) push(l lock.Loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.hears() || len(s.queue) >= pushQueue {
		return
	}
	s.queue = append(s.queue, l)
	if s.pusher == nil {
		s.pusher = make(chan struct{})
		go s.pushAll(s.pusher)
	}
}

// pushAll writes the queue, whole frames between whole replies. endPushes waits for it.
func (s *Session) pushAll(gone chan<- struct{}) {
	defer close(gone)
	for {
		s.mu.Lock()
		queue := s.queue
		s.queue = nil
		if len(queue) == 0 {
			s.pusher = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		var out []byte
		for _, l := range queue {
			out = resp.AppendPush(out, 3, 4)
			out = resp.AppendBulkString(out, "lock-lost")
			out = resp.AppendBulkString(out, l.Key)
			out = resp.AppendBulkString(out, l.Kind.String())
			out = resp.AppendBulkString(out, l.Reason)
		}
		s.guard.Write(out)
	}
}

// endPushes refuses more and waits for the pusher; the connection is closed by then, so that its write ends.
func (s *Session) endPushes() {
	s.mu.Lock()
	s.closed = true
	s.queue = nil
	pusher := s.pusher
	s.mu.Unlock()
	if pusher != nil {
		<-pusher
	}
}
