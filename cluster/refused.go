package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// confirmTimeout is how long the masters may take to say whether they accept an identity that one of them has refused.
const confirmTimeout = 2 * time.Second

// While the masters disagree they are asked again: after a second, two, four and so on, some four minutes in all.
const (
	confirmTimes = 9
	confirmAgain = time.Second
)

// OnRefused makes the cluster call f, from then on, for each identity that it refuses when connections are made, or
// made again: most masters refuse it, and none accepts it. If a single node refuses a user, for example because it
// lost its ACL, only commands to that node fail. f may run in several goroutines at once, and must not block.
func (c *Cluster) OnRefused(f func(upstream.Identity, *upstream.ReplyError)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks.refused = f
}

// nodeRefused is called by each node: it refuses an account, which id has the user and password of, or that has neither.
// It asks all masters, in a goroutine of its own, of which there is one for an account.
func (c *Cluster) nodeRefused(id upstream.Identity, why *upstream.ReplyError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.hooks.refused
	if f == nil || c.ctx.Err() != nil {
		return
	}
	again := c.confirming[id]
	if again != nil {
		retry.Wake(again)
		return
	}
	again = make(chan struct{}, 1)
	c.confirming[id] = again
	c.running.Add(1)
	go c.confirmRefusal(id, again, func() { f(id, why) })
}

// confirmRefusal asks all masters about an account that one node has refused. As long as some refuse it and some do
// not it asks again, a few times and whenever another node refuses it: users are deleted from one master after another.
func (c *Cluster) confirmRefusal(id upstream.Identity, again <-chan struct{}, refused func()) {
	defer c.running.Done()
	for times := 0; times < confirmTimes && c.ctx.Err() == nil; {
		said := c.askMasters(id)
		if refusedByCluster(said) {
			refused()
			break
		}
		if !slices.ContainsFunc(said, isRefusal) {
			break
		}
		if retry.Sleep(c.ctx, retry.Around(confirmAgain<<times), again) { // else another node has refused it
			times++
		}
	}
	c.mu.Lock()
	delete(c.confirming, id)
	c.mu.Unlock()
}

// askMasters asks all masters whether they let an account in; nil stands for one that does.
func (c *Cluster) askMasters(id upstream.Identity) (said []error) {
	ctx, cancel := context.WithTimeout(c.ctx, confirmTimeout)
	defer cancel()
	masters := c.Snapshot().Masters
	var asked sync.WaitGroup
	said = make([]error, len(masters))
	for i, n := range masters {
		c.Acquire(n)
		asked.Go(func() {
			defer c.Release(n)
			said[i] = letsIn(ctx, n.up, id)
		})
	}
	asked.Wait()
	return said
}

// letsIn asks one node.
func letsIn(ctx context.Context, n *upstream.Node, id upstream.Identity) error {
	if id.Anonymous() {
		return n.Admit(ctx, "")
	}
	return n.Authenticate(ctx, "", id.User, id.Password)
}

func isRefusal(err error) bool { return upstream.Refused(err) != nil }

// refusedByCluster judges what masters said to one account: errors other than refusals are no answers.
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
