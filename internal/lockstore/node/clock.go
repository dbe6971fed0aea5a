package node

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// sampleEvery is how often Redis is asked for its time.
	sampleEvery = time.Second
	// ClockTolerance is how far Redis' clock may move against ours between two samples before it counts as a jump.
	ClockTolerance = 250 * time.Millisecond
)

// Clock is our estimate of Redis' clock: its last TIME, carried on by our monotonic one.
type Clock struct {
	mu    sync.Mutex
	known bool
	era   int       // counts the masters: a sample of a former one is of no use
	micro int64     // Redis' clock in µs at the sample
	at    time.Time // when the reply came
	sent  time.Time // when it was asked for
}

// Now is the estimate in µs since 1970; it is behind Redis' clock by at most the sample's round trip.
func (c *Clock) Now() (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.micro + time.Since(c.at).Microseconds(), c.known
}

// Sampled is the last sample in µs, and how old it is; zeros when there is none.
func (c *Clock) Sampled() (micro int64, age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return 0, 0
	}
	return c.micro, time.Since(c.at)
}

// Forget forgets the clock, because another Redis has become the master.
func (c *Clock) Forget() {
	c.mu.Lock()
	c.known, c.era = false, c.era+1
	c.mu.Unlock()
}

// Era is the era of a sample that is asked for now.
func (c *Clock) Era() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.era
}

// Jump is by how much a clock has moved against ours, 0 if that is within ClockTolerance.
type Jump struct {
	By      time.Duration
	Another bool      // the sample before was a former master's: By is the difference of the two clocks
	Asked   time.Time // when the sample was asked for
}

// Set takes a sample of that era that was asked for at sent, and says by how much Redis' clock jumped since the last
// one.
func (c *Clock) Set(micro int64, sent time.Time, era int) (jump Jump, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if era != c.era {
		return jump, false
	}
	jump.Another, jump.Asked = !c.known, sent
	now := time.Now()
	if !c.at.IsZero() {
		early := c.micro + sent.Sub(c.at).Microseconds()
		late := c.micro + now.Sub(c.sent).Microseconds()
		switch {
		case micro < early:
			jump.By = time.Duration(micro-early) * time.Microsecond
		case micro > late:
			jump.By = time.Duration(micro-late) * time.Microsecond
		}
		if jump.By.Abs() < ClockTolerance {
			jump.By = 0
		}
	}
	c.known, c.micro, c.at, c.sent = true, micro, now, sent
	return jump, true
}

var errSwitched = errors.New("another Redis is the master now")

// Sample asks the node for its time, and says by how much its clock jumped.
func (n *Node) Sample() (jump Jump, err error) {
	era := n.Clock.Era()
	micro, sent, err := n.askTime()
	if err != nil {
		return jump, err
	}
	jump, ok := n.Clock.Set(micro, sent, era)
	if !ok {
		return jump, &upstream.NotSentError{Cause: errSwitched}
	}
	return jump, nil
}

// askTime asks the node for its time, in µs since 1970.
func (n *Node) askTime() (micro int64, sent time.Time, err error) {
	client, err := n.Control.Client(0)
	if err != nil {
		return 0, sent, &upstream.NotSentError{Cause: err}
	}
	sent = time.Now()
	parts, err := client.Do(context.Background(), client.B().Time().Build()).AsStrSlice()
	err = Outcome(err)
	if lost, is := errors.AsType[*upstream.LostError](err); is { // what the time was asked for has not been sent yet
		err = &upstream.NotSentError{Cause: lost.Cause}
	}
	if err != nil {
		return 0, sent, err
	}
	if len(parts) != 2 {
		return 0, sent, &upstream.ReplyError{Line: "ERR unexpected reply to TIME"}
	}
	seconds, _ := strconv.ParseInt(parts[0], 10, 64)
	micros, _ := strconv.ParseInt(parts[1], 10, 64)
	return seconds*1e6 + micros, sent, nil
}

// KeepTime samples the node's clock now, and once a second until ctx ends, and asks the node what it can do when that
// is due.
func (n *Node) KeepTime(ctx context.Context, sample func() error, site func() Site) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		if err, s := sample(), site(); err != nil {
			s.Log.Debug("cannot read Redis' clock", "error", err)
			n.Account.unreached(err, s)
		} else {
			n.Account.askWhenDue(s)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
