package node

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// strayPause is the pause before a channel is subscribed to again whose slot the node did not have: the slot may come
// back without any other notice.
const strayPause = 100 * time.Millisecond

// errNoShards says that the node is older than sharded channels (Redis 7): the next connection subscribes to the
// classic ones.
var errNoShards = errors.New("this Redis has no sharded channels")

// subscribeShards subscribes to sharded channels, each by itself: slots differ. The hook says which of them the node
// has.
func (s *Subscriber) subscribeShards(ctx context.Context, conn rueidis.DedicatedClient, names []string) error {
	commands := make(rueidis.Commands, 0, len(names))
	for _, name := range names {
		commands = append(commands, conn.B().Ssubscribe().Channel(name).Build())
	}
	var strays []string
	for i, reply := range conn.DoMulti(ctx, commands...) {
		err := reply.Error()
		switch refusal, refused := rueidis.IsRedisErr(err); {
		case err == nil:
		case refused && strings.Contains(refusal.Error(), "unknown command"):
			return errNoShards
		case refused && elsewhere(refusal):
			strays = append(strays, names[i])
		default: // as of classic channels, whose waiters then do not wait for a subscription
			return err
		}
	}
	if len(strays) == 0 {
		return nil
	}
	s.mu.Lock()
	s.strays = append(s.strays, strays...)
	for _, name := range strays {
		if c := s.chans[name]; c != nil {
			c.lost = true // who waits may have given up waiting for it
		}
	}
	s.mu.Unlock()
	s.o.Strayed()
	return nil
}

// elsewhere says that the node does not have, or no longer, what it was asked about.
func elsewhere(refusal *rueidis.RedisError) bool {
	_, moved := refusal.IsMoved()
	return moved || refusal.IsClusterDown() || refusal.IsTryAgain()
}

// unsubscribeShards ends subscriptions. Redis has itself ended those whose slots have gone, and refuses to end them
// again.
func (s *Subscriber) unsubscribeShards(ctx context.Context, conn rueidis.DedicatedClient, names []string) {
	for _, name := range names {
		_ = conn.Do(ctx, conn.B().Sunsubscribe().Channel(name).Build()).Error()
	}
}

// retryStrays gives Run the channels that the node did not have once more.
func (s *Subscriber) retryStrays() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.strays {
		s.enqueue(name)
	}
	s.strays = nil
}

// shardHook is called, by the connection's reader, for each sharded channel that Redis begins or ends. Redis ends them
// by itself when their slot goes to another node, which may be before whoever asked for them has seen that they were
// begun.
func (s *Subscriber) shardHook() func(rueidis.PubSubSubscription) {
	s.mu.Lock()
	era := s.era
	s.mu.Unlock()
	return func(of rueidis.PubSubSubscription) {
		if s.subscription(of, era) {
			s.o.Strayed()
		}
	}
}

// subscription says whether Redis has ended a channel that somebody here may want.
func (s *Subscriber) subscription(of rueidis.PubSubSubscription, era int) (strayed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chans[of.Channel]
	switch {
	case c == nil || s.era != era:
	case of.Kind == "ssubscribe":
		s.confirm(c)
	case of.Kind == "sunsubscribe" && c.on:
		c.on, c.lost, c.ready = false, true, make(chan struct{})
		s.strays = append(s.strays, of.Channel)
		return true
	}
	return false
}

// missed notes that messages on name may have been missed.
func (s *Subscriber) missed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.chans[name]; c != nil && !c.on {
		c.lost = true
	}
}
