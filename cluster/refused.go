package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// confirmTimeout is how long the masters may take to say what they think of an identity that one of them has refused.
const confirmTimeout = 2 * time.Second

// They are asked again while they disagree: after a second, two, four and so on, some four minutes in all.
const (
	confirmTimes = 9
	confirmAgain = time.Second
)

// credentials are what of an identity is refused: its user and password.
type credentials struct{ user, password string }

// OnRefused has f told, from then on, of identities that the cluster refuses when connections are made, or made again: most of
// its masters do, and none lets them in. A node that alone refuses a user, because it lost its ACL, say, costs the commands that go
// to it, and nothing else. f may run in several goroutines at once, and must not block.
func (c *Cluster) OnRefused(f func(upstream.Identity, *upstream.ReplyError)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks.refused = f
}

// nodeRefused is told by each node. It asks the other masters, in a goroutine of its own, one at a time for an account. Nobody can
// be asked about identities without a password.
func (c *Cluster) nodeRefused(id upstream.Identity, why *upstream.ReplyError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, who := c.hooks.refused, credentials{id.User, id.Password}
	if f == nil || c.ctx.Err() != nil {
		return
	}
	if who == (credentials{}) {
		f(id, why)
		return
	}
	again := c.confirming[who]
	if again != nil {
		retry.Wake(again)
		return
	}
	again = make(chan struct{}, 1)
	c.confirming[who] = again
	c.running.Add(1)
	go c.confirmRefusal(id, again, func() { f(id, why) })
}

// confirmRefusal asks all masters about an account that one node has refused. As long as some refuse it and some do not it asks
// again, a few times and whenever another node refuses it: users are deleted from one master after another.
func (c *Cluster) confirmRefusal(id upstream.Identity, again <-chan struct{}, refused func()) {
	defer c.running.Done()
	who := credentials{id.User, id.Password}
	pause := retry.Backoff{First: confirmAgain, Most: time.Hour}
	for range confirmTimes {
		said := c.askMasters(who)
		if refusedByCluster(said) {
			refused()
			break
		}
		if !slices.ContainsFunc(said, isRefusal) {
			break
		}
		retry.Sleep(c.ctx, pause.Next(), again)
	}
	c.mu.Lock()
	delete(c.confirming, who)
	c.mu.Unlock()
}

// askMasters has all masters say whether they let an account in: nil if they do.
func (c *Cluster) askMasters(who credentials) (said []error) {
	ctx, cancel := context.WithTimeout(c.ctx, confirmTimeout)
	defer cancel()
	masters := c.Snapshot().Masters
	var asked sync.WaitGroup
	said = make([]error, len(masters))
	for i, n := range masters {
		c.Acquire(n)
		asked.Go(func() {
			defer c.Release(n)
			said[i] = n.up.Authenticate(ctx, who.user, who.password)
		})
	}
	asked.Wait()
	return said
}

func isRefusal(err error) bool {
	var refusal *upstream.ReplyError
	return errors.As(err, &refusal)
}

// refusedByCluster judges what masters said to one account: errors are no answers, but for refusals.
func refusedByCluster(said []error) bool {
	refusals := 0
	for _, err := range said {
		switch {
		case err == nil:
			return false
		case isRefusal(err):
			refusals++
		}
	}
	return 2*refusals > len(said)
}
