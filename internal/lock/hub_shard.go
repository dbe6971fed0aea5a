package lock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// strayPause is how soon a channel is subscribed to again that its node did not have: the slot may come back before anything
// else is heard of it.
const strayPause = 100 * time.Millisecond

// errNoShards says that the node is older than sharded channels (Redis 7): the hub hears the classic ones on its next connection.
var errNoShards = errors.New("lock: this Redis has no sharded channels")

// subscribeShards subscribes to sharded channels, each by itself: slots differ. The hook hears which of them the node has.
func (h *hub) subscribeShards(ctx context.Context, conn rueidis.DedicatedClient, names []string) error {
	commands := make(rueidis.Commands, 0, len(names))
	for _, name := range names {
		commands = append(commands, conn.B().Ssubscribe().Channel(name).Build())
	}
	var strays []string
	for i, reply := range conn.DoMulti(ctx, commands...) {
		err := reply.Error()
		if refusal, refused := rueidis.IsRedisErr(err); refused && strings.Contains(refusal.Error(), "unknown command") {
			return errNoShards
		} else if refused {
			strays = append(strays, names[i])
		} else if err != nil {
			return err
		}
	}
	if len(strays) == 0 {
		return nil
	}
	h.mu.Lock()
	h.strays = append(h.strays, strays...)
	for _, name := range strays {
		if c := h.chans[name]; c != nil {
			c.lost = true // who waits may have given up waiting for it
		}
	}
	h.mu.Unlock()
	h.strayed()
	return nil
}

// unsubscribeShards ends subscriptions. Redis has ended those to slots that have gone, and refuses to be told so.
func (h *hub) unsubscribeShards(ctx context.Context, conn rueidis.DedicatedClient, names []string) {
	for _, name := range names {
		_ = conn.Do(ctx, conn.B().Sunsubscribe().Channel(name).Build()).Error()
	}
}

// retryStrays puts the channels that the node did not have before run once more.
func (h *hub) retryStrays() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range h.strays {
		h.enqueue(name)
	}
	h.strays = nil
}

// shardHook hears, from the connection's reader, which sharded channels Redis has begun and ended. It ends them by itself when
// their slot goes to another node, which may be before whoever asked for them has seen that they were begun.
func (h *hub) shardHook() func(rueidis.PubSubSubscription) {
	h.mu.Lock()
	era := h.era
	h.mu.Unlock()
	return func(s rueidis.PubSubSubscription) {
		if h.subscription(s, era) {
			h.strayed()
		}
	}
}

// subscription says whether Redis has ended a channel that somebody here may want.
func (h *hub) subscription(s rueidis.PubSubSubscription, era int) (strayed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.chans[s.Channel]
	switch {
	case c == nil || h.era != era:
	case s.Kind == "ssubscribe":
		h.confirm(c)
	case s.Kind == "sunsubscribe" && c.on:
		c.on, c.lost, c.ready = false, true, make(chan struct{})
		h.strays = append(h.strays, s.Channel)
		return true
	}
	return false
}

// missed notes that messages on name may have been missed.
func (h *hub) missed(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.chans[name]; c != nil && !c.on {
		c.lost = true
	}
}
