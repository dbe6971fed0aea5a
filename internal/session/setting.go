package session

import (
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Rename implements commands.Settings.
func (s *Session) Rename(name string) {
	s.mu.Lock()
	s.settings.name = name
	s.mu.Unlock()
	s.own.Rename(name)
}

// Set implements commands.Settings. Any goroutine may call it, but only while the session's own reads none of these settings.
func (s *Session) Set(t dedicated.Setting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch on := t.Value == "ON"; t.Of {
	case dedicated.SettingName:
		s.settings.name = t.Value
	case dedicated.SettingLibrary:
		s.settings.lib[0] = t.Value
		if l := s.locks.engine.Load(); l != nil {
			l.SetLibrary(t.Value != "")
		}
	case dedicated.SettingVersion:
		s.settings.lib[1] = t.Value
	case dedicated.SettingParent:
		s.settings.parent, _ = telemetry.ReadParent(t.Value)
	case dedicated.SettingNoEvict:
		s.settings.noEvict = on
	case dedicated.SettingNoTouch:
		s.settings.noTouch = on
	case dedicated.SettingLossPush:
		s.settings.wantsLossPush = on
	}
}

// queuedAs returns what Redis gets to queue in a transaction for a command that lockproxy answers itself otherwise. A
// setting that this Redis does not know is replaced by a command that is answered OK as well and changes nothing, since name is
// what the client is called then; no Redis knows of a traceparent.
func (s *Session) queuedAs(c *commandtable.Command, raw []byte, e dedicated.Effect, name string) []byte {
	switch e.Setting.Of {
	case dedicated.NoSetting, dedicated.SettingName:
		return raw
	case dedicated.SettingParent:
	default:
		if c.Spec != nil || !s.srv.facts.table.Load().Learned() {
			return raw
		}
	}
	return resp.AppendCommand(nil, "CLIENT", "SETNAME", name)
}

// SetReplyMode implements commands.Settings.
func (s *Session) SetReplyMode(m commands.ReplyMode) {
	switch m {
	case commands.RepliesOn:
		s.flush()
		s.replies.silent, s.replies.off = false, false
	case commands.RepliesOff:
		s.flush()
		s.replies.silent, s.replies.off = true, true
	case commands.RepliesSkip:
		s.replies.skip = !s.replies.off
	}
}

// runWithoutReply runs the command after CLIENT REPLY SKIP, and drops its reply.
func (s *Session) runWithoutReply(run func()) {
	s.forward()
	s.flush()
	s.replies.silent, s.replies.skip = true, false
	run()
	s.forward()
	s.own.Flush()
	s.flush()
	if s.replies.silent { // the command may have been CLIENT REPLY ON
		s.replies.silent = s.replies.off
	}
}

// resetReplyMode makes replies wanted again, for RESET. The reply to RESET itself stays unwanted if SKIP came before it.
func (s *Session) resetReplyMode() {
	s.flush()
	s.replies.silent = s.replies.silent && !s.replies.off
	s.replies.off, s.replies.skip = false, false
}

// PauseWrites implements commands.Neighbours.
func (s *Session) PauseWrites(d time.Duration) { s.srv.pauseWrites(d) }

// ResumeWrites implements commands.Neighbours.
func (s *Session) ResumeWrites() { s.srv.writes.paused.Store(0) }

// pauseWrites notes a pause; as in Redis, a shorter one does not shorten the present one.
func (s *Server) pauseWrites(d time.Duration) {
	until := time.Now().Add(d).UnixNano()
	for old := s.writes.paused.Load(); d > 0 && until > old; old = s.writes.paused.Load() {
		if s.writes.paused.CompareAndSwap(old, until) {
			return
		}
	}
}

// writesPaused says whether a client of this proxy has paused writes until later than now, or has sent a SHUTDOWN that is not
// answered yet.
func (s *Server) writesPaused() bool {
	if s.writes.shutting.Load() > 0 {
		return true
	}
	until := s.writes.paused.Load()
	return until != 0 && time.Now().UnixNano() < until
}

const (
	// pushQueue is how many bytes of losses may wait for a client that does not read: enough for all the locks that one client can be
	// expected to lose at once. Losses beyond it are not pushed; the lock verbs report them.
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

// Greeted implements commands.Settings: what RESP3 has is pushed from now on.
func (s *Session) Greeted() {
	s.flush()
	s.own.Greeted()
	s.mu.Lock()
	s.pushes.resp3 = s.ident.Proto == 3
	s.mu.Unlock()
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

// takePushes returns the frames of what is queued, none if the client no longer takes pushes. more is false if nothing was
// queued: then the pusher ends. mu is not held while the frames are made.
func (s *Session) takePushes() (out []byte, more bool) {
	queue, wanted := s.takeQueue()
	if !wanted { // not any more: the client has gone back to RESP2
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

// lossPushLibraries are libraries, by the name they give with CLIENT SETINFO, that can tell such a push from a reply although
// they have not asked for pushes. Each needs a test in integration/clients.
var lossPushLibraries = []string{"go-redis", "ioredis", "jedis", "lettuce", "node-redis", "redis-py", "redis-rs"}

// takesLossPush says whether a lost lock may be pushed to this client. The caller holds mu.
func (s *Session) takesLossPush() bool {
	if !s.pushes.resp3 {
		return false
	}
	library, _, _ := strings.Cut(s.settings.lib[0], "(") // a library that builds upon it adds its own name in brackets
	return s.settings.wantsLossPush || slices.Contains(lossPushLibraries, strings.ToLower(library))
}

// A client that was refused SCRIPT DEBUG may send its script all the same, as redis-cli --ldb does. The debugger would have
// run it in a fork of Redis, whose changes are thrown away: here it must not be run at all.

const notDebugged = "ERR SCRIPT DEBUG is not supported by lockproxy: this script was not run"

// notDebuggedRow replaces the row of a command that runs a script.
var notDebuggedRow = &commandtable.Command{Name: "eval", Refusal: true, Barred: true, Here: true, Line: notDebugged}

// Debugs implements commands.Settings.
func (s *Session) Debugs(on bool) { s.settings.debugs = on }

// undebugged returns c and run, or for a script a row and an answer that refuse it. Functions have no debugger: Redis runs them
// for real, too.
func (s *Session) undebugged(c *commandtable.Command, run answer) (*commandtable.Command, answer) {
	switch c.Script {
	case commandtable.RunsBody, commandtable.RunsSHA:
		return notDebuggedRow, func(s *Session, _ [][]byte) { s.error(notDebugged) }
	}
	return c, run
}
