// Package sharded keeps each lock on one Redis: the only one, or on a cluster the master that has the slot of its name.
package sharded

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/upstream"
)

// store is a lockstore.Store.
type store struct {
	shards
	host   lockstore.Host
	vacant vacancies // locks that have ended without an UNLOCK
	turns  replicaTurns
}

// shards are the Redis servers that have the locks: a single one, or the masters of a cluster by slot.
type shards interface {
	Run(ctx, requests context.Context)
	Location(key string) lockstore.Location
	Subscribe(name string, wake chan<- struct{}) lockstore.Subscription

	// able is whether locks can be had, at each Redis.
	able() []lockstore.Ability
	// permitted waits until it is known whether locks with this name may be given; refused says why not. err: ctx ended
	// first, or most, if that is not 0.
	permitted(ctx context.Context, most time.Duration, name string) (refused, err error)
	// do sends a request to the Redis that has its key, and says what the script returned.
	do(ctx context.Context, r *request) ([]int64, error)
}

// shard is one Redis of a store.
type shard struct {
	node.Node
	steps        func() node.Steps // how scripts are made for it
	sample       func() error      // asks it for its time, and has locks checked if its clock jumped
	site         func() node.Site
	clusterShard // of a cluster
}

// Single keeps the locks on one Redis, or on the master behind Sentinels.
func Single(ctl *upstream.Control) lockstore.Opener {
	return func(h lockstore.Host) (lockstore.Store, lockstore.Rules) {
		return newStore(newSingle(h, ctl), h), lockstore.Rules{}
	}
}

// PubSub says over which channels wake-ups go on a cluster.
type PubSub = node.PubSub

// Cluster keeps each lock on the node of its slot. The cluster is to live until the engine has ended. No PubSub:
// PubSubSharded.
func Cluster(c *cluster.Cluster, by PubSub) lockstore.Opener {
	return func(h lockstore.Host) (lockstore.Store, lockstore.Rules) {
		return newStore(newMasters(h, c, cmp.Or(by, node.PubSubSharded)), h), lockstore.Rules{Slots: true}
	}
}

func newStore(s shards, h lockstore.Host) *store {
	return &store{shards: s, host: h, vacant: newVacancies(),
		turns: replicaTurns{all: map[replicaKey]*databaseTurns{}}}
}

func (d *store) Run(ctx, requests context.Context) {
	var telling sync.WaitGroup
	telling.Go(func() { d.tellVacancies(ctx) })
	d.shards.Run(ctx, requests)
	telling.Wait()
}

func (d *store) Able() (where []lockstore.Ability, err error) {
	where = d.able()
	return where, lockstore.Able(where, max(1, len(where)))
}

// leastTold is how long a LOCK waits at least until it is known what Redis can do, however short its BLOCK is: after
// each start and each new connection that takes a moment.
const leastTold = time.Second

// Admit refuses locks at a node where the account is known to lack what they need.
func (d *store) Admit(ctx context.Context, name string, wait time.Duration) error {
	if wait > 0 {
		wait = max(wait, leastTold)
	}
	refused, err := d.permitted(ctx, wait, name)
	if err != nil && ctx.Err() == nil {
		return &upstream.NotSentError{Cause: lockstore.ErrUntold}
	}
	return cmp.Or(err, refused)
}
