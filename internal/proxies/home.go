package proxies

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// Home is the Redis where the proxies meet: the only one, the master behind Sentinels, or of a cluster the master that has
// the slot of the channel of questions. All nodes of a cluster pass a message on, but each counts only those who listen
// there. What is said goes over the connection that listens, so that no lock waits for it.
type Home struct {
	control func() (*upstream.Control, error) // of the Redis that is the home now
	close   func()                            // called when nobody asks or answers any more
	moved   chan struct{}                     // has one slot: it may be another one now
}

// At is the Redis of a Control.
func At(ctl *upstream.Control) *Home {
	h := &Home{control: func() (*upstream.Control, error) { return ctl, nil }, close: func() {}, moved: make(chan struct{}, 1)}
	ctl.OnSwitch(func() { retry.Wake(h.moved) })
	return h
}

// InCluster is a node of a cluster.
func InCluster(c *cluster.Cluster, log *slog.Logger) *Home {
	m := &master{cluster: c, log: log}
	h := &Home{control: m.control, close: m.close, moved: make(chan struct{}, 1)}
	c.OnChanged(func(_, _ *cluster.Snapshot) { retry.Wake(h.moved) })
	return h
}

// master is the master of a slot.
type master struct {
	cluster *cluster.Cluster
	log     *slog.Logger

	mu     sync.Mutex // guards all below
	node   *cluster.Node
	ctl    *upstream.Control // nil: there was none yet
	closed bool
}

var errNowhere = errors.New("no node has the slot of the channel of questions")

func (m *master) control() (*upstream.Control, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.cluster.Snapshot().Owner(cluster.Slot([]byte(asking)))
	if node == nil || m.closed {
		return nil, errNowhere
	}
	if node != m.node {
		m.leave()
		m.node, m.ctl = node, upstream.NewControl(node.Target(), upstream.ControlOptions{Logger: m.log})
	}
	return m.ctl, nil
}

// leave ends the connections to a node. mu is held.
func (m *master) leave() {
	if m.ctl != nil {
		m.ctl.Close()
	}
}

func (m *master) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.leave()
}

// subscribe hears what is said on some channels until ctx ends, the connection breaks, or the home is elsewhere.
func (h *Home) subscribe(ctx context.Context, hear func(rueidis.PubSubMessage), channels ...string) error {
	ctl, err := h.control()
	if err != nil {
		return err
	}
	client, err := ctl.Subscriber()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		h.stay(ctx, ctl)
	})
	defer watching.Wait()
	defer cancel()
	return client.Receive(ctx, client.B().Subscribe().Channel(channels...).Build(), hear)
}

// stay returns when that is no more the Control of the home, or ctx ends.
func (h *Home) stay(ctx context.Context, ctl *upstream.Control) {
	for {
		select {
		case <-h.moved:
			if now, err := h.control(); err == nil && now != ctl {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// publish has a text heard on a channel, and says how many listen for questions.
func (h *Home) publish(ctx context.Context, channel, text string) (listeners int, err error) {
	ctl, err := h.control()
	if err != nil {
		return 0, err
	}
	client, err := ctl.Subscriber()
	if err != nil {
		return 0, err
	}
	said := client.DoMulti(ctx, client.B().Arbitrary("PUBSUB", "NUMSUB", asking).Build(), client.B().Publish().Channel(channel).Message(text).Build())
	if err := said[1].Error(); err != nil {
		return 0, err
	}
	counts, err := said[0].AsIntMap()
	return int(counts[asking]), err
}
