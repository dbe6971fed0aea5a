package session

import (
	"errors"
	"os"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// clientPause is CLIENT PAUSE milliseconds [WRITE|ALL]. While Redis holds up writes, each client gets a connection of its
// own, so that the reads of others do not wait behind a write that waits.
func (s *Session) clientPause(args [][]byte) {
	answer, err := s.askApart(args)
	if s.relay(answer, err); err != nil || answer[0] != '+' {
		return
	}
	s.srv.pauseWrites(writePause(args))
}

// writePause is for how long CLIENT PAUSE has writes wait; 0: it does not.
func writePause(args [][]byte) time.Duration {
	if len(args) != 4 || !equalFold(args[3], "WRITE") {
		return 0
	}
	ms, _ := commands.Integer(args[2])
	return time.Duration(min(max(ms, 0), int64(maxPause/time.Millisecond))) * time.Millisecond
}

// pauseWrites notes a pause; as at Redis, a shorter one does not end the one there is.
func (s *Server) pauseWrites(d time.Duration) {
	until := time.Now().Add(d).UnixNano()
	for old := s.writes.paused.Load(); d > 0 && until > old; old = s.writes.paused.Load() {
		if s.writes.paused.CompareAndSwap(old, until) {
			return
		}
	}
}

// maxPause is how long a pause is believed in: longer ones are held to be forgotten.
const maxPause = time.Hour

func (s *Session) clientUnpause(args [][]byte) {
	answer, err := s.askApart(args)
	if s.relay(answer, err); err == nil && answer[0] == '+' {
		s.srv.writes.paused.Store(0)
	}
}

// writesPaused says whether a client of this proxy has had writes paused, for longer than until now, or has Redis end.
func (s *Server) writesPaused() bool {
	if s.writes.shutting.Load() > 0 {
		return true
	}
	until := s.writes.paused.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// apart runs one command on a connection of its own, where it need not wait for others.
func (s *Session) apart(args [][]byte) { s.relay(s.askApart(args)) }

// apartFor is how long a connection apart is tried for, when Redis takes it and says nothing: longer than the 5 s of its
// busy-reply-threshold.
const apartFor = 10 * time.Second

func (s *Session) askApart(args [][]byte) ([]byte, error) {
	return s.pipes.way.askApart(args)
}

func (u *single) askApart(args [][]byte) ([]byte, error) {
	s := u.s
	if err := s.refused(); err != nil {
		return nil, err
	}
	ctx, done := s.clientContext()
	defer done()
	p, err := u.node.Private(ctx, s.ident)
	// For its first seconds a script lets Redis answer nobody: SCRIPT KILL is to wait for that, not to fail.
	for until := time.Now().Add(apartFor); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil && time.Now().Before(until); {
		p, err = u.node.Private(ctx, s.ident)
	}
	if err != nil {
		return nil, err
	}
	defer p.Release()
	var got backend.Gathered
	err = p.Do(&upstream.Request{Cmds: [][]byte{resp.Command(args)}, Sink: &got})
	return got, err
}
