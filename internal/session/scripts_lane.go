package session

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// Connections for scripts are shared pipes in lanes beside the one of ordinary commands: lane 1 carries quick scripts of
// all clients of an identity, those above one client's run at a time. Out of use they are kept as idle identities are.
const (
	quickLane = 1
	maxAlone  = 64 // runs with a connection to themselves at once; more go over the quick lane
)

// scriptLanes are the lanes in use.
type scriptLanes struct {
	mu    sync.Mutex // a leaf
	quick map[upstream.Identity]*quickScripts
	alone map[upstream.Identity]struct{} // with their lanes
}

// quickScripts is what is known of a quick lane.
type quickScripts struct {
	users   int          // sessions that have it open; guarded by scriptLanes.mu
	waiting atomic.Int64 // runs under way
	moved   atomic.Int64 // when a run last ended, or began as the only one; unix nanoseconds
}

// scriptLane is a session's way to the quick lane, open from its first quick script on.
type scriptLane struct {
	pipe *upstream.Pipe
	lane *quickScripts
	id   upstream.Identity
}

func newScriptLanes() *scriptLanes {
	return &scriptLanes{quick: map[upstream.Identity]*quickScripts{}, alone: map[upstream.Identity]struct{}{}}
}

// join notes one more user of the identity's quick lane.
func (l *scriptLanes) join(id upstream.Identity) *quickScripts {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.quick[id]
	if q == nil {
		q = &quickScripts{}
		l.quick[id] = q
	}
	q.users++
	return q
}

// leave gives the session's way to the quick lane back.
func (w *scriptLane) leave(l *scriptLanes) {
	if w.pipe == nil {
		return
	}
	w.pipe.Release()
	l.part(w.id, w.lane)
	*w = scriptLane{}
}

// take finds a lane of id that nobody uses.
func (l *scriptLanes) take(id upstream.Identity) (lane upstream.Identity, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.alone) >= maxAlone {
		return id, false
	}
	for id.Lane = quickLane + 1; ; id.Lane++ {
		if _, used := l.alone[id]; !used {
			l.alone[id] = struct{}{}
			return id, true
		}
	}
}

func (l *scriptLanes) giveBack(lane upstream.Identity) {
	l.mu.Lock()
	delete(l.alone, lane)
	l.mu.Unlock()
}

// stuck says that a script in the lane is not as quick as it was: nobody should queue up behind it.
func (q *quickScripts) stuck() bool {
	return q.waiting.Load() > 0 && time.Now().UnixNano()-q.moved.Load() > int64(quickScript)
}

// forwardLane sends a run that has scripts in it, and says how long Redis took. Where Redis is out of reach, or gives no
// further connection, the run goes the way of ordinary commands: it is no worse off then than on one connection.
func (s *Session) forwardLane(quick bool) time.Duration {
	main, err := s.pipe()
	if err != nil || !main.Connected() || s.mustLogIn() {
		return s.timed(main, err)
	}
	if quick && s.openLane() && !s.lane.lane.stuck() {
		return s.forwardQuick()
	}
	id, free := s.srv.lanes.take(s.ident)
	if free {
		defer s.srv.lanes.giveBack(id)
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
	return s.ident.User == "" && s.ident.Password == "" && (s.srv.mustAuth.Load() || s.refused() != nil)
}

func (s *Session) timed(p *upstream.Pipe, err error) time.Duration {
	began := time.Now()
	s.forwardOver(p, err)
	return time.Since(began)
}

// openLane opens the quick lane, and says whether it can be used.
func (s *Session) openLane() bool {
	if s.lane.pipe == nil {
		id := s.ident
		id.Lane = quickLane
		p, err := s.srv.o.Node.Open(s.srv.ctx, id)
		if err != nil {
			return false
		}
		s.lane = scriptLane{pipe: p, lane: s.srv.lanes.join(id), id: id}
	}
	return s.lane.pipe.Connected()
}

// forwardQuick sends the run over the quick lane.
func (s *Session) forwardQuick() time.Duration {
	return s.lane.lane.timed(func() { s.forwardOver(s.lane.pipe, nil) })
}
