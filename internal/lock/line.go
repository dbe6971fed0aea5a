package lock

import (
	"container/list"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// line is the waiters of one key on this proxy, first come first. Only its head talks to Redis.
type line struct {
	key  lineKey
	wake chan struct{} // one message that no head has acted on yet

	// guarded by Manager.mu
	waiters list.List // of *waiter
	tryAt   time.Time // when the head tries without being woken; zero: at once
}

type waiter struct {
	c     *Client
	id    holdID
	since time.Time
	head  chan struct{} // closed when it becomes the head
	place *list.Element
}

// nudge makes the head try again.
func (l *line) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// join puts a waiter at the end of the key's line.
func (m *Manager) join(c *Client, r Request) (*line, *waiter) {
	id, _ := c.id(r.Kind, r.DB, r.Key, r.Owner)
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lines[id.line()]
	if l == nil {
		l = &line{key: id.line(), wake: make(chan struct{}, 1)}
		m.lines[l.key] = l
		m.hub.hear(l.key.channel(), l)
	}
	w := &waiter{c: c, id: id, since: time.Now(), head: make(chan struct{})}
	w.place = l.waiters.PushBack(w)
	if l.waiters.Len() == 1 {
		close(w.head)
	}
	telemetry.LocksWaiting.Add(1)
	return l, w
}

// part takes a waiter out; the next one becomes the head.
func (m *Manager) part(l *line, w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	telemetry.LocksWaiting.Add(-1)
	first := l.waiters.Front() == w.place
	l.waiters.Remove(w.place)
	next := l.waiters.Front()
	switch {
	case next == nil:
		delete(m.lines, l.key)
		m.hub.unhear(l.key.channel(), l)
	case first:
		close(next.Value.(*waiter).head)
	}
}

// waitedFor says whether somebody stands in the key's line.
func (m *Manager) waitedFor(key lineKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lines[key] != nil
}

// wait stands in line until the lock is ours, the time is over, the client goes, or the proxy drains.
func (c *Client) wait(ctx context.Context, r Request) (Grant, error) {
	m := c.m
	id, explicit := c.id(r.Kind, r.DB, r.Key, r.Owner)
	began := time.Now()
	if !m.waitedFor(id.line()) || explicit && m.holdsElsewhere(id) {
		if g, _, err := c.try(ctx, r); !errors.Is(err, ErrNotAcquired) {
			return g, err
		}
	}
	ctx, span := telemetry.Span(ctx, "wait")
	defer span.End()
	// The subscription comes before the try that follows it, so that no unlock falls between.
	l, w := m.join(c, r)
	defer m.part(l, w)

	var over <-chan time.Time
	if r.Block > 0 {
		timer := time.NewTimer(milliseconds(r.Block) - time.Since(began))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-w.head:
	case <-over:
		return Grant{}, ErrNotAcquired
	case <-ctx.Done():
		return Grant{}, ctx.Err()
	case <-m.drained:
		return Grant{}, errDraining
	}
	return c.waitAsHead(ctx, r, l, over)
}

// waitAsHead tries whenever a message or the timer says so.
func (c *Client) waitAsHead(ctx context.Context, r Request, l *line, over <-chan time.Time) (Grant, error) {
	m := c.m
	if err := m.hub.ready(ctx, l.key.channel(), over); err != nil {
		return Grant{}, err
	}
	var trouble error
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		m.mu.Lock()
		timer.Reset(max(0, time.Until(l.tryAt)))
		m.mu.Unlock()
		select {
		case <-timer.C:
		case <-l.wake:
		case <-over:
			if trouble != nil {
				return Grant{}, trouble
			}
			return Grant{}, ErrNotAcquired
		case <-ctx.Done():
			return Grant{}, ctx.Err()
		case <-m.drained:
			return Grant{}, errDraining
		}
		g, ttl, err := c.try(ctx, r)
		switch {
		case err == nil:
			m.afterGrant(l, r)
			return g, nil
		case errors.Is(err, ErrNotAcquired):
			trouble = nil
			m.tryNext(l, ttl)
		case passing(err):
			trouble = err
			m.tryNext(l, troubledPoll)
		default:
			l.nudge() // what woke us is the next one's to act on
			return Grant{}, err
		}
	}
}

// afterGrant tells the next in line, whose head still is the one that was granted r, when to try. It need not ask, since the
// lock is held and it is subscribed, unless both share it.
func (m *Manager) afterGrant(l *line, r Request) {
	m.mu.Lock()
	granted := l.waiters.Front()
	next := granted.Next()
	together := next != nil && r.Kind.nature().shared && next.Value.(*waiter).id.kind == r.Kind
	m.mu.Unlock()
	m.tryNext(l, leaseOf(r, m.opts))
	if together {
		l.nudge()
	}
}

// troubledPoll is the longest time in ms between tries while Redis is away.
const troubledPoll = 250

func leaseOf(r Request, o Options) int64 {
	if r.Lease > 0 {
		return r.Lease
	}
	return o.Watchdog.Milliseconds()
}

// tryNext sets when the head tries by itself: when the lease that it saw is over, and after Poll at the latest; with
// some jitter, since the heads of other proxies wait as well. ttl is in ms, negative = the key is gone or has no TTL.
func (m *Manager) tryNext(l *line, ttl int64) {
	poll := m.opts.Poll/2 + rand.N(m.opts.Poll/2)
	if left := milliseconds(max(ttl, 0)) + time.Millisecond + rand.N(2*time.Millisecond); ttl != -1 && left < poll {
		poll = left
	}
	m.mu.Lock()
	l.tryAt = time.Now().Add(poll)
	m.mu.Unlock()
}
