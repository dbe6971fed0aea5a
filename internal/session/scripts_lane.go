package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/upstream"
)

// scriptLane is a session's way to the quick lane, open from its first quick script on.
type scriptLane struct {
	pipe *upstream.Pipe
	lane *scriptcache.Lane
}

// leave gives the session's way to the quick lane back.
func (w *scriptLane) leave() {
	if w.pipe == nil {
		return
	}
	w.pipe.Release()
	w.lane.Leave()
	*w = scriptLane{}
}

// forwardLane sends a run that has scripts in it, and says how long Redis took. Where Redis is out of reach, or gives no
// further connection, the run goes the way of ordinary commands: it is no worse off then than on one connection.
func (s *Session) forwardLane(quick bool) time.Duration {
	main, err := s.pipe()
	if err != nil || !main.Connected() || s.mustLogIn() {
		return s.timed(main, err)
	}
	if quick && s.openLane() && !s.pipes.lane.lane.Stuck() {
		return s.forwardQuick()
	}
	id, free := s.srv.lanes.Take(s.ident)
	if free {
		defer s.srv.lanes.GiveBack(id)
		if p, err := s.srv.o.Node.Open(s.srv.ctx, id); err == nil {
			defer p.Release()
			return s.timed(p, nil)
		}
	} else if s.openLane() {
		return s.forwardQuick()
	}
	return s.timed(main, nil)
}

// mustLogIn says that Redis refuses the client's commands until it has authenticated: no further connection is made for them.
func (s *Session) mustLogIn() bool {
	return s.ident.User == "" && s.ident.Password == "" && (s.srv.access.mustAuth.Load() || s.refused() != nil)
}

func (s *Session) timed(p *upstream.Pipe, err error) time.Duration {
	began := time.Now()
	s.forwardOver(p, err)
	return time.Since(began)
}

// openLane opens the quick lane, and says whether it can be used.
func (s *Session) openLane() bool {
	if s.pipes.lane.pipe == nil {
		lane := s.srv.lanes.Join(s.ident)
		p, err := s.srv.o.Node.Open(s.srv.ctx, lane.ID())
		if err != nil {
			lane.Leave()
			return false
		}
		s.pipes.lane = scriptLane{pipe: p, lane: lane}
	}
	return s.pipes.lane.pipe.Connected()
}

// forwardQuick sends the run over the quick lane.
func (s *Session) forwardQuick() time.Duration {
	return s.pipes.lane.lane.Timed(func() { s.forwardOver(s.pipes.lane.pipe, nil) })
}
