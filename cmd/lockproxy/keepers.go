package main

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/upstream"
)

// openLocks makes the lock engine, and connects to the Redises that keep the locks, unless upstream does.
func (a *app) openLocks(ctx context.Context) error {
	by := sharded.PubSub(a.cfg.Cluster.PubSub)
	where := a.upstream.keeps(by)
	switch at := a.cfg.Locks.URL; {
	case len(a.cfg.Quorum.Nodes) > 0:
		if err := a.connectQuorum(); err != nil {
			return err
		}
		where = quorum.Open(quorum.StoreOptions{Nodes: a.quorum, MaxLease: a.cfg.Quorum.MaxLease, NodeTimeout: a.cfg.Quorum.NodeTimeout})
	case a.cfg.Locks.Apart():
		if _, err := a.connect(ctx, &a.apart, at, a.cfg.Locks.PasswordFile); err != nil {
			return err
		}
		where = lockstore.Apart(at.String(), a.apart.keeps(by))
	}
	a.locks = lock.New(where, a.lockOptions())
	return nil
}

// nodeDial is how long a quorum's node may take to accept a connection.
const nodeDial = 2 * time.Second

// connectQuorum makes the nodes of --quorum known. Those that have been up, or at their address, for less than the
// longest lease, and what clocks may differ on it, are not connected to: they may have forgotten locks, or never have
// known them.
func (a *app) connectQuorum() error {
	longest, distinct := a.cfg.Quorum.MaxLease, &upstream.Distinct{}
	for _, url := range a.cfg.Quorum.Nodes {
		target := url.Target()
		if err := a.secureUpstream(&target, a.cfg.Quorum.PasswordFile); err != nil {
			return err
		}
		target.MinUptime = longest + longest/100
		target.Vetter = distinct.Add(url.String(), target.MinUptime)
		a.addresses = append(a.addresses, upstream.FollowAddress(&target, a.log))
		a.quorum = append(a.quorum, quorum.Node{
			Name:    url.String(),
			Control: upstream.NewControl(target, upstream.ControlOptions{DialTimeout: nodeDial, Logger: a.log}),
		})
	}
	return nil
}

// abortLocks ends the lock engine's requests under way.
func (a *app) abortLocks() {
	a.locks.Abort()
	a.closeControls()
}

// closeControls ends what the lock engine still asks of Redis.
func (a *app) closeControls() {
	for _, r := range []redisAt{a.upstream, a.apart} {
		if r.control != nil {
			r.control.Close()
		}
	}
	for _, n := range a.quorum {
		n.Control.Close()
	}
}
