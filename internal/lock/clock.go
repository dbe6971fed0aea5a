package lock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// notAfter is how long after it was sent a verb's script may still be done, by Redis' clock. Where Redis was slower than that
	// the next try has twice as long, the last one lateMost. Renewals have longer: see lane.
	notAfter  = time.Second
	lateTries = 3
	lateMost  = notAfter << (lateTries - 1)
)

// sample asks Redis for its time.
func (m *Manager) sample() error {
	if m.quorum != nil || m.fleet != nil {
		return nil // each node has a clock of its own
	}
	_, known := m.one.Clock.Now()
	jump, err := m.one.Sample()
	switch {
	case jump != 0 && !known:
		m.anotherClock(jump)
	case jump != 0:
		m.log.Warn("Redis' clock jumped, checking every lock", "by", jump)
		m.recheck(reasonClock)
	}
	return err
}

// notAfter is the not-after of a script that is about to be sent, as its argument and in µs of Redis' clock; on a cluster a mark,
// and in µs of the proxy's.
func (m *Manager) notAfter(ctx context.Context) (string, int64, error) {
	now, known := m.one.Clock.Now()
	if !known {
		if err := m.sample(); err != nil {
			return "", 0, err
		}
		now, _ = m.one.Clock.Now()
	}
	at := now + allowed(ctx).Microseconds()
	if m.fleet != nil {
		return m.fleet.mark, at, nil
	}
	return strconv.FormatInt(at, 10), at, nil
}

type allowKey struct{}

// allowing has the scripts that are sent on behalf of ctx done up to d after they were sent, instead of notAfter.
func allowing(ctx context.Context, d time.Duration) context.Context {
	if d == notAfter {
		return ctx
	}
	return context.WithValue(ctx, allowKey{}, d)
}

func allowed(ctx context.Context) time.Duration {
	if d, ok := ctx.Value(allowKey{}).(time.Duration); ok {
		return d
	}
	return notAfter
}

// tooLate is what is known when Redis came to a script after its not-after: it did nothing. Its clock is read again.
func (m *Manager) tooLate(took, allowed time.Duration) error {
	if err := m.sample(); err != nil {
		return err
	}
	why := "its clock is ahead of where it was"
	if took >= allowed {
		why = fmt.Sprintf("the answer took %v, %v are allowed", took.Round(time.Millisecond), allowed.Round(time.Millisecond))
	}
	return &upstream.NotSentError{Cause: fmt.Errorf("%w, and nothing was done: %s", errLate, why)}
}

// keepTime samples Redis' clock until ctx ends.
func (m *Manager) keepTime(ctx context.Context) {
	node.KeepTime(ctx, func() {
		m.secondLook()
		if err := m.sample(); err != nil {
			m.log.Debug("cannot read Redis' clock", "error", err)
		} else {
			m.askAccount(&m.account, m.site())
		}
	})
}
