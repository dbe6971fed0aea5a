package upstream

import (
	"context"
	"sync"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Term is the time in which one server is the one that a Target means. It ends when another server is.
type Term struct {
	context.Context
	Addr string
	end  context.CancelCauseFunc
}

// Terms is what a Resolver knows of the server that is meant at present, and of those before it. It is all of a
// Resolver but Dial and Check.
type Terms struct {
	mu       sync.Mutex // guards all below
	now      *Term      // nil: no server is known yet
	changed  chan struct{}
	switches int64
	hooks    []func()
}

// Now is the present term, nil if no server is known yet, and the channel that Moved returns.
func (s *Terms) Now() (*Term, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.now, s.changed
}

// Moved implements Resolver.
func (s *Terms) Moved() <-chan struct{} {
	_, changed := s.Now()
	return changed
}

// Present implements Resolver.
func (s *Terms) Present() (addr string, switches int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		addr = s.now.Addr
	}
	return addr, s.switches
}

// OnSwitch implements Resolver.
func (s *Terms) OnSwitch(hook func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(s.hooks, hook)
}

// Begin begins a term of the server at addr. The one before goes on, for the connections that were made in it.
func (s *Terms) Begin(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = newTerm(addr)
}

func newTerm(addr string) *Term {
	ctx, end := context.WithCancelCause(context.Background())
	return &Term{ctx, addr, end}
}

// End ends a term, and with it all connections that were made in it. The hooks are called when no reply of theirs
// counts any more, and before there is a next term: after the present one that is a term of the server at next. moved
// counts it as a switch. False: it was over already.
func (s *Terms) End(t *Term, next string, moved bool, cause error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Err() != nil {
		return false
	}
	t.end(cause)
	for _, hook := range s.hooks {
		hook()
	}
	if s.now == t {
		s.now = newTerm(next)
	}
	if moved {
		s.switches++
		telemetry.MasterSwitches.Add(1)
	}
	return true
}

// Announce wakes those who wait for a change.
func (s *Terms) Announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}
