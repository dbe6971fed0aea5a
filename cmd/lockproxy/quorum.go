package main

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/upstream"
)

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
	if a.control != nil {
		a.control.Close()
	}
	for _, n := range a.quorum {
		n.Control.Close()
	}
}
