package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// confirmTimeout is how long the masters may take to say what they think of an identity that one of them has refused.
const confirmTimeout = 2 * time.Second

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
	if f == nil || c.ctx.Err() != nil || c.confirming[who] {
		return
	}
	if who == (credentials{}) {
		f(id, why)
		return
	}
	c.confirming[who] = true
	c.running.Add(1)
	go c.confirmRefusal(id, why, f)
}

// confirmRefusal asks all masters about an account that one node has refused.
func (c *Cluster) confirmRefusal(id upstream.Identity, why *upstream.ReplyError, f func(upstream.Identity, *upstream.ReplyError)) {
	defer c.running.Done()
	ctx, cancel := context.WithTimeout(c.ctx, confirmTimeout)
	defer cancel()
	masters := c.Snapshot().Masters
	var asked sync.WaitGroup
	said := make([]error, len(masters))
	for i, n := range masters {
		c.Acquire(n)
		asked.Go(func() {
			defer c.Release(n)
			said[i] = n.up.Authenticate(ctx, id.User, id.Password)
		})
	}
	asked.Wait()
	c.mu.Lock()
	delete(c.confirming, credentials{id.User, id.Password})
	c.mu.Unlock()
	if refusedByCluster(said) {
		f(id, why)
	}
}

// refusedByCluster judges what masters said to one account: errors are no answers, but for refusals.
func refusedByCluster(said []error) bool {
	refusals := 0
	for _, err := range said {
		var refusal *upstream.ReplyError
		switch {
		case err == nil:
			return false
		case errors.As(err, &refusal):
			refusals++
		}
	}
	return 2*refusals > len(said)
}
