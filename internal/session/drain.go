package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
)

const (
	drainPoll = 20 * time.Millisecond // how often a drain looks for clients that hold nothing any more
	drainTell = 5 * time.Second       // how often the log says which clients it still waits for
	lastCall  = 5 * time.Second       // for commands still unanswered upstream when the drain's time is over
)

// Shutdown drains: no client is let in, no new lock is given, clients that hold no lock are closed once they are
// between commands, and outside of transactions and waits, the others as soon as they have released. Connections that
// have said LOCKPROXY stay until all others have gone. At ctx's end all that are left are closed and their locks run
// out. It returns when every session has ended; an error says how it had to be forced, and who was left.
func (s *Server) Shutdown(ctx context.Context) error {
	s.gate.Drain()
	if s.o.Locks != nil {
		s.o.Locks.Drain()
	}
	err := s.drain(ctx)
	if s.gate.DrainOperators(); err == nil {
		err = s.drain(ctx) // for those who have come to the admin socket meanwhile
	}
	left := s.Left() // before their waits end
	s.loops.cancel()
	if err != nil {
		err = fmt.Errorf("session: %s: %w", left, err)
		for _, c := range s.clients.snapshot() {
			c.client.End.Cut(downstream.Left, "drain timeout")
		}
		if !s.waitEmpty() {
			err = fmt.Errorf("%w; some clients' last commands were never answered", err)
		}
	}
	s.gate.Finish()
	if s.clients.n.Load() == 0 {
		s.clients.running.Wait()
	}
	s.loops.running.Wait()
	return err
}

// drain asks idle clients to leave until none is left or ctx ends.
func (s *Server) drain(ctx context.Context) error {
	tick, tell := time.NewTicker(drainPoll), time.NewTicker(drainTell)
	defer tick.Stop()
	defer tell.Stop()
	for {
		left := s.clients.snapshot()
		if len(left) == 0 {
			return nil
		}
		if !slices.ContainsFunc(left, (*Session).holdsUp) {
			s.lastOut.Store(true)
		}
		for _, c := range left {
			if c.client.Held() == 0 { // a client that holds locks checks by itself after each release
				c.client.Reader.Wake()
			}
		}
		select {
		case <-tick.C:
		case <-tell.C:
			until, _ := ctx.Deadline()
			s.log.Info("still draining", "waits-for", s.Left(), "closes-them-in", time.Until(until).Round(time.Second))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// holdsUp says that a drain waits for the client: for all but operators who do nothing.
func (s *Session) holdsUp() bool { return !s.shownOperator() || s.underWay() }

// shownOperator says that the client came as an operator, or has shown itself to be one.
func (s *Session) shownOperator() bool { return s.client.Peer.Operator || s.access.operates.Load() }

// underWay says that the client holds a lock, or is in the middle of a command, a wait or a transaction.
func (s *Session) underWay() bool { return !s.atRest() || s.client.Step.Now() != 0 }

// atRest says that the client holds no lock, is in no transaction and waits for no reply.
func (s *Session) atRest() bool {
	return s.client.Held() == 0 && !s.own.View.Busy()
}

// MayLeave says that a drain may close the client.
func (s *Session) MayLeave() bool {
	return s.atRest() && (s.srv.lastOut.Load() || !s.shownOperator())
}

// laggard is a client that a drain waits for.
type laggard struct {
	addr, name string
	locks      []string // it holds
	last       string   // command
}

// Left says which clients have something under way, for which a drain waits, and which locks they hold.
func (s *Server) Left() string {
	locks := map[int64][]string{}
	if s.o.Locks != nil {
		for _, e := range s.o.Locks.List("", "") {
			if e.Place == 0 {
				locks[e.ClientID] = append(locks[e.ClientID], e.Key)
			}
		}
	}
	var all []laggard
	for _, c := range s.clients.snapshot() {
		if c.underWay() {
			f := c.facts()
			all = append(all, laggard{f.Addr, f.Name, locks[f.ID], f.Last})
		}
	}
	return nameLaggards(all)
}

// How much is told of clients that are left.
const (
	laggardsNamed = 10
	locksNamed    = 5 // of each
)

// nameLaggards names those first who hold most locks.
func nameLaggards(all []laggard) string {
	slices.SortStableFunc(all, func(a, b laggard) int { return cmp.Compare(len(b.locks), len(a.locks)) })
	holders, parts := 0, []string{}
	for i, l := range all {
		if len(l.locks) > 0 {
			holders++
		}
		if i < laggardsNamed {
			parts = append(parts, l.describe())
		}
	}
	if more := len(all) - laggardsNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more clients", more))
	}
	count := fmt.Sprintf("clients that held locks: %d; others in the middle of a command, a wait or a transaction: %d", holders, len(all)-holders)
	if len(parts) == 0 {
		return count
	}
	return count + " (" + strings.Join(parts, "; ") + ")"
}

func (l laggard) describe() string {
	who := l.addr
	if l.name != "" {
		who += " named " + display.Shown(l.name)
	}
	if len(l.locks) == 0 {
		return who + ": " + cmp.Or(l.last, "no command yet")
	}
	var names []string
	for _, name := range l.locks[:min(len(l.locks), locksNamed)] {
		names = append(names, display.Shown(name))
	}
	if more := len(l.locks) - locksNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return who + " holds " + strings.Join(names, ", ")
}

func (s *Server) waitEmpty() bool {
	ctx, cancel := context.WithTimeout(context.Background(), lastCall)
	defer cancel()
	for s.clients.n.Load() > 0 && retry.Sleep(ctx, time.Millisecond, nil) {
	}
	return s.clients.n.Load() == 0
}
