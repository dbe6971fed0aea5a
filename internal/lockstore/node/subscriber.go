package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// SubscriberOptions set up a Subscriber.
type SubscriberOptions struct {
	Logger *slog.Logger
	Back   func() // called after every new connection has all its subscriptions

	// Of a node of a cluster.
	Sharded bool   // it subscribes to the channels of SPUBLISH, if the node has them
	Strayed func() // called when the node no longer has a channel's slot
}

// Subscriber receives the unlock messages of all locks that are waited for, over one pub/sub connection.
type Subscriber struct {
	ctl     *upstream.Control
	o       SubscriberOptions
	sharded bool // the node has sharded channels, as far as is known, and they are asked for

	mu      sync.Mutex
	chans   map[string]*channel
	pending []string // channels to subscribe or unsubscribe, as their state then says
	work    chan struct{}
	strays  []string      // channels that the node would not have
	era     int           // counts the connections that have broken
	failing bool          // there is no connection, or Redis did not take the subscriptions on the last one
	moved   chan struct{} // one slot: Redis is about to be somewhere else, so that a pause has no use
}

// channel is one subscription.
type channel struct {
	users map[chan<- struct{}]int // who waits for messages, and how often it asked for them
	on    bool                    // Redis has confirmed the subscription on the present connection
	lost  bool                    // messages may have been missed: its users are woken when it is on again
	ready chan struct{}           // closed when on, or when the connection has failed
}

// NewSubscriber makes a Subscriber, which does nothing before Run.
func NewSubscriber(ctl *upstream.Control, o SubscriberOptions) *Subscriber {
	return &Subscriber{
		ctl: ctl, o: o, sharded: o.Sharded,
		chans: map[string]*channel{}, work: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
}

// Hurry ends the pause between two connections: Redis is about to be somewhere else.
func (s *Subscriber) Hurry() { retry.Wake(s.moved) }

// Subscribe makes messages on name send on wake. It does not wait for the subscription: Ready does.
func (s *Subscriber) Subscribe(name string, wake chan<- struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chans[name]
	if c == nil {
		c = &channel{users: map[chan<- struct{}]int{}, ready: make(chan struct{})}
		s.chans[name] = c
	}
	c.users[wake]++
	if !c.on {
		s.enqueue(name)
	}
}

// unsubscribe ends one Subscribe.
func (s *Subscriber) unsubscribe(name string, wake chan<- struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chans[name]
	if c.users[wake]--; c.users[wake] == 0 {
		delete(c.users, wake)
	}
	if len(c.users) == 0 {
		s.enqueue(name)
	}
}

// enqueue hands a channel to Run. mu is held.
func (s *Subscriber) enqueue(name string) {
	s.pending = append(s.pending, name)
	retry.Wake(s.work)
}

// subscribeWait is how long a waiter waits for a subscription before it goes on by polling.
const subscribeWait = 2 * time.Second

// ready waits until there is a subscription to name. One that does not come is no error: waiters also poll. While none
// can be had, as far as is known, nobody waits for one: a waiter does not try meanwhile, and cannot be handed the lock.
func (s *Subscriber) ready(ctx context.Context, name string, over <-chan time.Time) error {
	s.mu.Lock()
	c, failing := s.chans[name], s.failing
	on, ready := c.on, c.ready
	s.mu.Unlock()
	switch {
	case on:
		return nil
	case failing:
		s.missed(name)
		return nil
	}
	timer := time.NewTimer(subscribeWait)
	defer timer.Stop()
	select {
	case <-ready:
	case <-timer.C:
	case <-over:
		return lockstore.ErrOver
	case <-ctx.Done():
		return ctx.Err()
	}
	s.missed(name) // if it is not on
	return nil
}

// Run keeps the connection until ctx ends.
func (s *Subscriber) Run(ctx context.Context) {
	failures := retry.Backoff{First: 10 * time.Millisecond, Most: MaxPause}
	for ctx.Err() == nil {
		began := time.Now()
		err := s.session(ctx)
		s.broken()
		s.sharded = s.o.Sharded && !errors.Is(err, errNoShards)
		if ctx.Err() != nil {
			return
		}
		s.o.Logger.Debug("wake-up connection lost", "error", err)
		if time.Since(began) > time.Second {
			failures.Reset()
		}
		if !retry.Sleep(ctx, failures.Next(), s.moved) {
			failures.Reset()
		}
	}
}

// MaxPause is the longest pause between attempts to get the wake-up connection back.
const MaxPause = 500 * time.Millisecond

// session is the life of one connection.
func (s *Subscriber) session(ctx context.Context) error {
	client, err := s.ctl.Subscriber()
	if err != nil {
		return err
	}
	conn, release := client.Dedicate()
	defer release()
	defer conn.Close()
	failed := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: s.message, OnSubscription: s.shardHook()})
	if err := conn.Do(ctx, conn.B().Ping().Build()).Error(); err != nil {
		return err
	}
	if err := s.applyChanges(ctx, conn, s.wanted()); err != nil {
		return err
	}
	s.mu.Lock()
	s.failing = false
	s.mu.Unlock()
	s.o.Back()
	var retry <-chan time.Time
	if s.sharded {
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
			s.retryStrays()
		case <-s.work:
			if err := s.applyChanges(ctx, conn, s.takeChanges()); err != nil {
				return err
			}
		}
	}
}

// wanted names every channel that somebody waits on and forgets the others: a new connection starts with those.
func (s *Subscriber) wanted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending, s.strays = nil, nil
	names := []string{}
	for name, c := range s.chans {
		if len(c.users) == 0 {
			delete(s.chans, name)
			continue
		}
		names = append(names, name)
	}
	return names
}

func (s *Subscriber) takeChanges() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.pending
	s.pending = nil
	return names
}

// applyChanges brings the named channels to the state they should have.
func (s *Subscriber) applyChanges(ctx context.Context, conn rueidis.DedicatedClient, names []string) error {
	var on, off []string
	s.mu.Lock()
	for _, name := range names {
		c := s.chans[name]
		switch {
		case c == nil:
		case len(c.users) > 0 && !c.on:
			on = append(on, name)
		case len(c.users) == 0:
			off = append(off, name)
			delete(s.chans, name)
		}
	}
	s.mu.Unlock()
	slices.Sort(on) // so that a simulation sends the same bytes whenever it is repeated
	slices.Sort(off)
	if s.sharded {
		s.unsubscribeShards(ctx, conn, off)
	} else if len(off) > 0 {
		if err := conn.Do(ctx, conn.B().Unsubscribe().Channel(off...).Build()).Error(); err != nil {
			return err
		}
	}
	if s.sharded {
		return s.subscribeShards(ctx, conn, on)
	}
	if len(on) > 0 {
		if err := conn.Do(ctx, conn.B().Subscribe().Channel(on...).Build()).Error(); err != nil {
			return err
		}
	}
	s.confirmed(on)
	return nil
}

func (s *Subscriber) confirmed(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		s.confirm(s.chans[name])
	}
}

// confirm notes that messages on a channel come from now on. mu is held.
func (s *Subscriber) confirm(c *channel) {
	if c == nil || c.on {
		return
	}
	c.on = true
	close(c.ready)
	if !c.lost {
		return
	}
	c.lost = false
	for wake := range c.users {
		retry.Wake(wake)
	}
}

// broken notes that no channel is subscribed any more, and that there is no connection.
func (s *Subscriber) broken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era++
	s.failing = true
	for _, c := range s.chans {
		if !c.on {
			close(c.ready)
		}
		c.on, c.ready = false, make(chan struct{})
	}
}

// message is called by the connection's reader: it only wakes.
func (s *Subscriber) message(msg rueidis.PubSubMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.chans[msg.Channel]; c != nil {
		for wake := range c.users {
			retry.Wake(wake)
		}
	}
}
