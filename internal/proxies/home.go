package proxies

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// Home is the Redis where the proxies meet: the only one, the master behind Sentinels, or of a cluster the master that has
// the slot of the channel of questions. All nodes of a cluster pass a message on, but each counts only those who listen
// there. What is said goes over the connection that listens, so that no lock waits for it.
type Home struct {
	open  func() (ctl *upstream.Control, leave func(), err error) // the Redis that is the home now
	moved chan struct{}                                           // has one slot: it is another one now
	line  atomic.Pointer[rueidis.Client]                          // nil: nothing is heard, and nothing can be said
}

// At is the Redis of a Control.
func At(ctl *upstream.Control) *Home {
	h := &Home{moved: make(chan struct{}, 1)}
	h.open = func() (*upstream.Control, func(), error) { return ctl, func() {}, nil }
	ctl.OnSwitch(func() { retry.Wake(h.moved) })
	return h
}

var errNowhere = errors.New("no node has the slot of the channel of questions")

// InCluster is a node of a cluster.
func InCluster(c *cluster.Cluster, log *slog.Logger) *Home {
	h, slot := &Home{moved: make(chan struct{}, 1)}, cluster.Slot([]byte(asking))
	h.open = func() (*upstream.Control, func(), error) {
		node := c.Snapshot().Owner(slot)
		if node == nil {
			return nil, nil, errNowhere
		}
		ctl := upstream.NewControl(node.Target(), upstream.ControlOptions{Logger: log})
		return ctl, ctl.Close, nil
	}
	c.OnChanged(func(before, now *cluster.Snapshot) {
		if before.Owner(slot) != now.Owner(slot) {
			retry.Wake(h.moved)
		}
	})
	return h
}

// subscribe hears what is said on some channels until ctx ends, the connection breaks, or the home is elsewhere.
func (h *Home) subscribe(ctx context.Context, hear func(rueidis.PubSubMessage), channels ...string) error {
	select {
	case <-h.moved: // there it goes now
	default:
	}
	ctl, leave, err := h.open()
	if err != nil {
		return err
	}
	defer leave()
	client, err := ctl.Subscriber()
	if err != nil {
		return err
	}
	h.line.Store(&client)
	defer h.line.Store(nil)
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		h.stay(ctx)
	})
	defer watching.Wait()
	defer cancel()
	return client.Receive(ctx, client.B().Subscribe().Channel(channels...).Build(), hear)
}

// stay returns when the home is elsewhere, or ctx ends.
func (h *Home) stay(ctx context.Context) {
	select {
	case <-h.moved:
	case <-ctx.Done():
	}
}

var errDeaf = errors.New("this proxy does not hear the others")

// publish has a text heard on a channel, and says how many listen for questions.
func (h *Home) publish(ctx context.Context, channel, text string) (listeners int, err error) {
	line := h.line.Load()
	if line == nil {
		return 0, errDeaf
	}
	client := *line
	said := client.DoMulti(ctx, client.B().Arbitrary("PUBSUB", "NUMSUB", asking).Build(), client.B().Publish().Channel(channel).Message(text).Build())
	if err := said[1].Error(); err != nil {
		return 0, err
	}
	counts, err := said[0].AsIntMap()
	return int(counts[asking]), err
}
