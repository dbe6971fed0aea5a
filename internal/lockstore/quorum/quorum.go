// Package quorum keeps each lock on several independent nodes, in the bytes that one node would have, and believes what
// a majority of them says.
package quorum

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/upstream"
)

// On each node an owner's hold counts one, whatever the nesting: setting it and dropping it can be done twice, so nodes
// that missed a step never disagree about a number. Only this proxy knows how often a connection has taken its lock.

// StoreOptions are the nodes of a quorum and its times. All proxies must have the same.
type StoreOptions struct {
	Nodes []Node
	// The longest lease, and for how long a node must have been up to count (its Control sees to that): 60 s.
	MaxLease    time.Duration
	NodeTimeout time.Duration // how long a node may take for one step; later than that it does nothing: 200 ms
}

// Node is one of the nodes. Its Control must connect with upstream.Target.MinUptime.
type Node struct {
	Name    string // for people
	Control *upstream.Control
}

type store struct {
	common
	all              nodes
	node.Subscribers // one for each node
	holds            *holds
}

// common is what a store and its nodes have in common.
type common struct {
	host     lockstore.Host
	steps    node.Steps
	maxLease time.Duration
	timeout  time.Duration
}

// until is by when the nodes must have begun a step that is sent now: within the node time-out, and within a quarter of
// its lease if that is shorter, so that most of the lease is left.
func (c *common) until(lease time.Duration) time.Time {
	if lease > 0 {
		return time.Now().Add(min(c.timeout, max(lease/4, 10*time.Millisecond)))
	}
	return time.Now().Add(c.timeout)
}

// Open keeps the locks on a quorum.
func Open(o StoreOptions) lockstore.Opener {
	return func(h lockstore.Host) (lockstore.Store, lockstore.Rules) {
		q := newStore(h, o)
		return q, lockstore.Rules{Votes: true, MaxLease: q.maxLease}
	}
}

func newStore(h lockstore.Host, o StoreOptions) *store {
	q := &store{common: common{h, node.Steps{Publish: node.Publish}, cmp.Or(o.MaxLease, time.Minute),
		cmp.Or(o.NodeTimeout, 200*time.Millisecond)}}
	for i, n := range o.Nodes {
		one := &quorumNode{common: &q.common, name: n.Name, index: i, Node: node.Node{Control: n.Control},
			trouble: errNoAnswer}
		q.all = append(q.all, one)
		hears := node.NewSubscriber(n.Control,
			node.SubscriberOptions{Logger: h.Log, Back: func() { q.resubscribed(one) }})
		q.Subscribers = append(q.Subscribers, hears)
		n.Control.OnSwitch(func() { // another Redis is at its address: it counts when it is old enough there
			one.Account.Outdated()
			one.Clock.Forget()
			hears.Hurry()
		})
	}
	q.holds = &holds{nodes: q.all, byKey: map[holdKey]*nodeHold{}}
	return q
}

// resubscribed is called when the wake-up connection of a node is back.
func (q *store) resubscribed(n *quorumNode) {
	n.Account.Outdated()
	q.host.RecheckAll(lockstore.Gone)
	q.host.Wake(lockstore.EveryKey)
}

// Run listens to the nodes, and keeps their time. The Controls' Close ends requests.
func (q *store) Run(ctx, _ context.Context) {
	var parts sync.WaitGroup
	for i, n := range q.all {
		parts.Go(func() { q.Subscribers[i].Run(ctx) })
		parts.Go(func() { n.KeepTime(ctx, n.sample, n.site) })
	}
	parts.Wait()
}

// Admit refuses nobody: a node that lacks something says so when it is asked for its vote.
func (q *store) Admit(context.Context, string, time.Duration) error { return nil }

// renewAtOnce is the most renewals in flight.
const renewAtOnce = 16

func (q *store) Location(string) lockstore.Location { return lockstore.Location{AtOnce: renewAtOnce} }

// On a quorum there is no fair queue and no hand-off. A lock that ends by itself needs no message either: its lease
// began when it was taken or renewed, so whoever waits has been told by the nodes how much of it is left.

func (q *store) RefreshQueue(lockstore.Queue) ([]int64, time.Duration, error) { return nil, -1, nil }

func (q *store) LeaveQueue(lockstore.ID, time.Time, func() bool) {}

func (q *store) Vacate(lockstore.ID, time.Time, time.Time) {}
