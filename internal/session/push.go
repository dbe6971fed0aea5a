package session

import (
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	// pushQueue bounds what waits for a client that does not read, in bytes: all the locks that one client may well lose at once fit.
	// Losses beyond it are not pushed; the verbs tell them.
	pushQueue = 16 << 20
	// pushOverhead is what a loss takes in the queue beside the lock's name.
	pushOverhead = 64
)

// pushes are the losses that a client is to be told; Session.mu guards them.
type pushes struct {
	resp3  bool // the client has been answered in RESP3, and knows what a push is
	queue  []lock.Loss
	queued int           // what the queue takes, in bytes
	pusher chan struct{} // closed when the pusher at work has gone; nil: none at work
	closed bool          // no pushes any more
}

// push queues the news of a lost lock for a client that can take it. It never blocks: a pusher is started when
// there is something to write, and goes when there is nothing more.
func (s *Session) push(l lock.Loss) {
	s.locks.untold.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	size := len(l.Key) + pushOverhead
	if s.pushes.closed || !s.takesLossPush() || s.pushes.queued+size > pushQueue {
		return
	}
	s.pushes.queue, s.pushes.queued = append(s.pushes.queue, l), s.pushes.queued+size
	if s.pushes.pusher == nil {
		s.pushes.pusher = make(chan struct{})
		go s.pushAll(s.pushes.pusher)
	}
}

// pushable notes that the client may be pushed to, once it has the reply that says so.
func (s *Session) pushable() {
	if s.ident.Proto == 3 && !s.pushes.resp3 {
		s.flush()
		s.mu.Lock()
		s.pushes.resp3 = true
		s.mu.Unlock()
	}
}

// pushAll writes the queue, whole frames between whole replies. endPushes waits for it.
func (s *Session) pushAll(gone chan<- struct{}) {
	defer close(gone)
	for more := true; more; {
		s.guard.WriteLatest(func() (out []byte) {
			out, more = s.takePushes()
			return out
		})
	}
}

// takePushes takes what is queued, for a client that can still take it. With nothing queued the pusher is to go. Who queues
// does not wait for the frames to be made.
func (s *Session) takePushes() (out []byte, more bool) {
	queue, wanted := s.takeQueue()
	if !wanted { // any more: it has gone back to RESP2
		return nil, len(queue) > 0
	}
	for _, l := range queue {
		out = resp.AppendPush(out, 3, 4)
		out = resp.AppendBulkString(out, "lock-lost")
		out = resp.AppendBulkString(out, l.Key)
		out = resp.AppendBulkString(out, l.Kind.String())
		out = resp.AppendBulkString(out, l.Reason)
	}
	return out, len(queue) > 0
}

func (s *Session) takeQueue() (queue []lock.Loss, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue, s.pushes.queue, s.pushes.queued = s.pushes.queue, nil, 0
	if len(queue) == 0 {
		s.pushes.pusher = nil
	}
	return queue, s.takesLossPush()
}

// endPushes refuses more and waits for the pusher; the connection is closed by then, so that its write ends.
func (s *Session) endPushes() {
	s.mu.Lock()
	s.pushes.closed = true
	s.pushes.queue, s.pushes.queued = nil, 0
	pusher := s.pushes.pusher
	s.mu.Unlock()
	if pusher != nil {
		<-pusher
	}
}

// lostPushes is the capability of a client that wants to be told of lost locks. Redis itself pushes nothing that was
// not asked for, and there are libraries that take any push for the reply to their next command.
const lostPushes = "lock-lost"

// lossPushLibraries are libraries, by the name they give with CLIENT SETINFO, that keep such a push apart from replies without
// having asked for it. Whoever adds one shows it in integration/clients.
var lossPushLibraries = []string{"go-redis", "ioredis", "jedis", "lettuce", "node-redis", "redis-py", "redis-rs"}

// clientCapa is CLIENT CAPA capability …, as of Valkey 8: what it does not know it ignores.
func (s *Session) clientCapa(args [][]byte) {
	if hasLossPush(args[2:]) {
		s.take(dedicated.Setting{Of: dedicated.SettingLossPush, Value: "ON"})
	}
	s.ok()
}

// hasLossPush says whether lostPushes is among the capabilities.
func hasLossPush(capabilities [][]byte) bool {
	return slices.ContainsFunc(capabilities, func(c []byte) bool { return equalFold(c, lostPushes) })
}

// takesLossPush says whether a lost lock may be pushed to this client. The caller holds mu.
func (s *Session) takesLossPush() bool {
	if !s.pushes.resp3 {
		return false
	}
	library, _, _ := strings.Cut(s.settings.lib[0], "(") // what builds upon it adds its own name in brackets
	return s.settings.wantsLossPush || slices.Contains(lossPushLibraries, strings.ToLower(library))
}
