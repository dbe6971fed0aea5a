package session

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/events"
)

// With LOCKPROXY PAUSE an operator holds back what the clients of this proxy send, for example while Redis is switched
// over. Each command waits, before it is sent, until the pause ends. Verbs that release or renew locks, and the
// watchdog's renewals, are never held back: otherwise locks would be lost.

// pauses has the pause in force, and counts the clients that wait for its end.
type pauses struct {
	now  atomic.Pointer[pause] // nil: there is none
	held atomic.Int64          // clients that are held back
}

// pause is one pause that an operator has begun. It never changes.
type pause struct {
	ctx    context.Context // ends with it
	end    context.CancelFunc
	writes bool // it holds back only what may write
}

// begin replaces the pause there is.
func (p *pauses) begin(ctx context.Context, d time.Duration, writes bool) {
	one := &pause{writes: writes}
	one.ctx, one.end = context.WithTimeout(ctx, d)
	if old := p.now.Swap(one); old != nil {
		old.end() // the clients that it held back look at the new one
	}
	context.AfterFunc(one.ctx, func() { p.now.CompareAndSwap(one, nil) })
}

// end lets all go on.
func (p *pauses) end() {
	if one := p.now.Swap(nil); one != nil {
		one.end()
	}
}

// facts returns what operators are told of the pause.
func (p *pauses) facts() (f commands.PauseFacts) {
	f.Held = p.held.Load()
	if one := p.now.Load(); one != nil {
		until, _ := one.ctx.Deadline()
		f.Left, f.Writes = max(time.Until(until), time.Millisecond), one.writes
	}
	return f
}

// holds says whether the pause holds back command c. here: lockproxy answers it itself.
func (p *pause) holds(c *commandtable.Command, here bool) bool {
	switch {
	case p.ctx.Err() != nil:
		return false
	case here:
		return c != nil && c.Locks // nil: Redis has not told its commands yet
	}
	return !p.writes || c == nil || c.MayWrite()
}

// heldBack waits for the end of a pause that holds back a command.
func (s *Session) heldBack(c *call) {
	all := &s.srv.pauses
	for p := all.now.Load(); p != nil && p.holds(c.row, c.answer != nil) && !s.client.End.Over(); p = all.now.Load() {
		all.held.Add(1)
		s.standStill(func(ctx context.Context) {
			select {
			case <-p.ctx.Done():
			case <-ctx.Done():
			}
		})
		all.held.Add(-1)
	}
}

// standStill has the present command wait for wait, whose ctx ends with the client. The replies to earlier commands are
// written first.
func (s *Session) standStill(wait func(ctx context.Context)) {
	s.pipes.Send()
	s.own.Flush()
	s.client.Step.Rest() // nothing is under way
	s.client.Watch(wait)
	s.client.Step.Next()
	s.batch.Timing.Elsewhere()
}

// Pause implements commands.Operator.
func (o Operators) Pause(by *client.Client, d time.Duration, writes bool) {
	o.s.log.Info("commands are held back, as an operator has asked", "client", by.Peer.Addr, "user", by.User(), "for", d,
		"writes only", writes)
	o.s.o.Events.Add(eventOf(events.Pause, by, fmt.Sprintf("for %v, writes only: %v", d, writes)))
	o.s.pauses.begin(o.s.ctx, d, writes)
}

// Resume implements commands.Operator.
func (o Operators) Resume(by *client.Client) {
	o.s.log.Info("commands are held back no longer, as an operator has asked", "client", by.Peer.Addr, "user", by.User())
	o.s.o.Events.Add(eventOf(events.Pause, by, "over"))
	o.s.pauses.end()
}
