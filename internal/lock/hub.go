package lock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// hub hears the unlock messages of all locks that are waited for, over one pub/sub connection. A channel that nobody
// waits on stays subscribed for a while, since a lock that was contended once will be again.
type hub struct {
	ctl  *upstream.Control
	log  *slog.Logger
	back func() // called after every new connection has all its subscriptions

	// Of a node of a cluster.
	shards  bool   // it is to hear the channels of SPUBLISH
	sharded bool   // it does: the node has them, as far as is known
	echo    bool   // what it hears is heard on a sharded channel, too, and not counted
	strayed func() // called when the node no longer has a channel's slot

	mu      sync.Mutex
	chans   map[string]*channel
	warm    *lru.Cache[string, struct{}] // channels nobody waits on; the oldest is unsubscribed when it is full
	pending []string                     // channels to subscribe or unsubscribe, as their state then says
	work    chan struct{}
	strays  []string      // channels that the node would not have
	era     int           // counts the connections that have broken
	moved   chan struct{} // one slot: Redis is about to be somewhere else, so that a pause has no use
}

// channel is one subscription.
type channel struct {
	lines map[*line]int // who hears it, and how often it asked for it; empty: warm
	on    bool          // Redis has confirmed the subscription on the present connection
	lost  bool          // messages may have been missed: whoever hears it tries when it is on again
	ready chan struct{} // closed when on, or when the connection failed (the waiter then polls)
}

func newHub(ctl *upstream.Control, warm int, log *slog.Logger, back func()) *hub {
	h := &hub{ctl: ctl, log: log, back: back, chans: map[string]*channel{}, work: make(chan struct{}, 1), moved: make(chan struct{}, 1)}
	// lru.NewWithEvict fails for a size below 1 only.
	h.warm, _ = lru.NewWithEvict(warm, h.evicted)
	return h
}

// hear has messages on name nudge l. It does not wait for the subscription: ready does.
func (h *hub) hear(name string, l *line) {
	h.mu.Lock()
	c := h.chans[name]
	if c == nil {
		c = &channel{lines: map[*line]int{}, ready: make(chan struct{})}
		h.chans[name] = c
	}
	c.lines[l]++
	if !c.on {
		h.enqueue(name)
	}
	h.mu.Unlock()
	h.warm.Remove(name)
}

// unhear ends that; the channel stays warm.
func (h *hub) unhear(name string, l *line) {
	h.mu.Lock()
	c := h.chans[name]
	if c.lines[l]--; c.lines[l] == 0 {
		delete(c.lines, l)
	}
	cold := len(c.lines) == 0
	h.mu.Unlock()
	if cold {
		h.warm.Add(name, struct{}{})
	}
}

// evicted is called by the LRU, also for names that hear took out of it.
func (h *hub) evicted(name string, _ struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.chans[name]; c != nil && len(c.lines) == 0 {
		h.enqueue(name)
	}
}

// enqueue hands a channel to run. mu is held.
func (h *hub) enqueue(name string) {
	h.pending = append(h.pending, name)
	select {
	case h.work <- struct{}{}:
	default:
	}
}

// subscribeWait is how long a waiter waits for a subscription before it goes on by polling.
const subscribeWait = 2 * time.Second

// ready waits until messages on name are heard, and says whether they were not yet. A subscription that does not come is no
// error: timers cover it.
func (h *hub) ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error) {
	h.mu.Lock()
	on, ready := h.chans[name].on, h.chans[name].ready
	h.mu.Unlock()
	if on {
		return false, nil
	}
	timer := time.NewTimer(subscribeWait)
	defer timer.Stop()
	select {
	case <-ready:
	case <-timer.C:
	case <-over:
		return true, ErrNotAcquired
	case <-ctx.Done():
		return true, ctx.Err()
	}
	return true, nil
}

// run keeps the connection until ctx ends.
func (h *hub) run(ctx context.Context) {
	failures := retry.Backoff{First: minPause, Most: maxPause}
	for ctx.Err() == nil {
		began := time.Now()
		err := h.session(ctx)
		h.broken()
		h.sharded = h.shards && !errors.Is(err, errNoShards)
		if ctx.Err() != nil {
			return
		}
		h.log.Debug("wake-up connection lost", "error", err)
		if time.Since(began) > time.Second {
			failures.Reset()
		}
		if !retry.Sleep(ctx, failures.Next(), h.moved) {
			failures.Reset()
		}
	}
}

// Pauses between attempts to get the wake-up connection back.
const (
	minPause = 10 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// session is the life of one connection.
func (h *hub) session(ctx context.Context) error {
	client, err := h.ctl.Subscriber()
	if err != nil {
		return err
	}
	conn, release := client.Dedicate()
	defer release()
	defer conn.Close()
	failed := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: h.message, OnSubscription: h.shardHook()})
	if err := conn.Do(ctx, conn.B().Ping().Build()).Error(); err != nil {
		return err
	}
	if err := h.subscribe(ctx, conn, h.all()); err != nil {
		return err
	}
	h.back()
	var retry <-chan time.Time
	if h.sharded {
		ticker := time.NewTicker(strayPause)
		defer ticker.Stop()
		retry = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-retry:
			h.retryStrays()
		case <-h.work:
			if err := h.subscribe(ctx, conn, h.take()); err != nil {
				return err
			}
		}
	}
}

// all names every channel that somebody waits on and forgets the others: a new connection starts with those.
func (h *hub) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending, h.strays = nil, nil
	names := []string{}
	for name, c := range h.chans {
		if len(c.lines) == 0 {
			delete(h.chans, name)
			continue
		}
		names = append(names, name)
	}
	return names
}

func (h *hub) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := h.pending
	h.pending = nil
	return names
}

// subscribe brings the named channels to the state they should have.
func (h *hub) subscribe(ctx context.Context, conn rueidis.DedicatedClient, names []string) error {
	var on, off []string
	h.mu.Lock()
	for _, name := range names {
		c := h.chans[name]
		switch {
		case c == nil:
		case len(c.lines) > 0 && !c.on:
			on = append(on, name)
		case len(c.lines) == 0 && !h.warm.Contains(name):
			off = append(off, name)
			delete(h.chans, name)
		}
	}
	h.mu.Unlock()
	slices.Sort(on) // so that a simulation sends the same bytes whenever it is repeated
	slices.Sort(off)
	if h.sharded {
		h.unsubscribeShards(ctx, conn, off)
	} else if len(off) > 0 {
		if err := conn.Do(ctx, conn.B().Unsubscribe().Channel(off...).Build()).Error(); err != nil {
			return err
		}
	}
	if h.sharded {
		return h.subscribeShards(ctx, conn, on)
	}
	if len(on) > 0 {
		if err := conn.Do(ctx, conn.B().Subscribe().Channel(on...).Build()).Error(); err != nil {
			return err
		}
	}
	h.confirmed(on)
	return nil
}

func (h *hub) confirmed(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		h.confirm(h.chans[name])
	}
}

// confirm notes that messages on a channel are heard from now on. mu is held.
func (h *hub) confirm(c *channel) {
	if c == nil || c.on {
		return
	}
	c.on = true
	close(c.ready)
	if !c.lost {
		return
	}
	c.lost = false
	for l := range c.lines {
		l.nudge()
	}
}

// broken notes that no channel is subscribed any more.
func (h *hub) broken() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.era++
	for _, c := range h.chans {
		if c.on {
			c.on, c.ready = false, make(chan struct{})
		}
	}
}

// message is called by the connection's reader: it only nudges.
func (h *hub) message(msg rueidis.PubSubMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.chans[msg.Channel]; c != nil {
		for l := range c.lines {
			if !h.echo {
				l.messages.Add(1)
			}
			l.nudge()
		}
	}
}
