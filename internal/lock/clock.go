package lock

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// notAfter is how long after it was sent a verb's script may still be done, by Redis' clock. Where Redis was slower than that
	// the next try has twice as long, the last one lateMost. Renewals have longer: see lane.
	notAfter  = time.Second
	lateTries = 3
	lateMost  = notAfter << (lateTries - 1)
	// clockSample is how often Redis is asked for its time.
	clockSample = time.Second
	// clockTolerance is how far Redis' clock may move against ours between two samples before it counts as a jump.
	clockTolerance = 250 * time.Millisecond
)

// clock is our estimate of Redis' clock: its last TIME, carried on by our monotonic one.
type clock struct {
	mu    sync.Mutex
	known bool
	era   int       // counts the masters: a sample of a former one is of no use
	micro int64     // Redis' clock in µs at the sample
	at    time.Time // when the reply came
	sent  time.Time // when it was asked for
}

// now is the estimate in µs since 1970; it is behind Redis' clock by at most the sample's round trip.
func (c *clock) now() (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.micro + time.Since(c.at).Microseconds(), c.known
}

// earliest is a time in µs that Redis' clock has reached for sure, however it differs from ours within what is allowed for; 0 when
// it is not known.
func (c *clock) earliest() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	age := time.Since(c.at)
	return c.micro + (age - tally.Drift(age)).Microseconds()
}

// age is how old the last sample is; 0 when there is none.
func (c *clock) age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return 0
	}
	return time.Since(c.at)
}

// forget is for another master, whose clock is not known yet.
func (c *clock) forget() {
	c.mu.Lock()
	c.known, c.era = false, c.era+1
	c.mu.Unlock()
}

// present is the era of a sample that is asked for now.
func (c *clock) present() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.era
}

// set takes a sample of that era that was asked for at sent, and says by how much Redis' clock jumped since the last one.
func (c *clock) set(micro int64, sent time.Time, era int) (jump time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if era != c.era {
		return 0, false
	}
	now := time.Now()
	if !c.at.IsZero() { // of a former master's clock it is the difference
		early := c.micro + sent.Sub(c.at).Microseconds()
		late := c.micro + now.Sub(c.sent).Microseconds()
		switch {
		case micro < early:
			jump = time.Duration(micro-early) * time.Microsecond
		case micro > late:
			jump = time.Duration(micro-late) * time.Microsecond
		}
		if jump.Abs() < clockTolerance {
			jump = 0
		}
	}
	c.known, c.micro, c.at, c.sent = true, micro, now, sent
	return jump, true
}

// sample asks Redis for its time.
func (m *Manager) sample() error {
	if m.quorum != nil || m.fleet != nil {
		return nil // each node has a clock of its own
	}
	_, known := m.clock.now()
	jump, err := sampleClock(m.ctl, &m.clock)
	switch {
	case jump != 0 && !known:
		m.anotherClock(jump)
	case jump != 0:
		m.log.Warn("Redis' clock jumped, checking every lock", "by", jump)
		m.recheck(reasonClock)
	}
	return err
}

// sampleClock asks one node for its time, and says by how much its clock jumped.
func sampleClock(ctl *upstream.Control, c *clock) (jump time.Duration, err error) {
	era := c.present()
	micro, sent, err := askTime(ctl)
	if err != nil {
		return 0, err
	}
	jump, ok := c.set(micro, sent, era)
	if !ok {
		return 0, &upstream.NotSentError{Cause: errSwitched}
	}
	return jump, nil
}

// askTime asks one node for its time, in µs since 1970.
func askTime(ctl *upstream.Control) (micro int64, sent time.Time, err error) {
	client, err := ctl.Client(0)
	if err != nil {
		return 0, sent, &upstream.NotSentError{Cause: err}
	}
	sent = time.Now()
	parts, err := client.Do(context.Background(), client.B().Time().Build()).AsStrSlice()
	if err != nil {
		return 0, sent, outcome(err)
	}
	if len(parts) != 2 {
		return 0, sent, &upstream.ReplyError{Line: "ERR unexpected reply to TIME"}
	}
	seconds, _ := strconv.ParseInt(parts[0], 10, 64)
	micros, _ := strconv.ParseInt(parts[1], 10, 64)
	return seconds*1e6 + micros, sent, nil
}

// notAfter is the not-after of a script that is about to be sent, as its argument and in µs of Redis' clock; on a cluster a mark,
// and in µs of the proxy's.
func (m *Manager) notAfter(ctx context.Context) (string, int64, error) {
	now, known := m.clock.now()
	if !known {
		if err := m.sample(); err != nil {
			return "", 0, err
		}
		now, _ = m.clock.now()
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
	ticker := time.NewTicker(clockSample)
	defer ticker.Stop()
	for {
		if err := m.sample(); err != nil {
			m.log.Debug("cannot read Redis' clock", "error", err)
		} else {
			m.askAccount(&m.account, m.site())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		m.secondLook()
	}
}
