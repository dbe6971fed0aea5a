package config

import (
	"fmt"
	"time"
)

// minNodes is how many nodes a quorum has at least: with less none may fail.
const minNodes = 3

// mostMaxLease bounds how long a restarted node counts for nobody. With much more, sums of times would be below 0,
// and it would count at once.
const mostMaxLease = 24 * time.Hour

// quorumFaults are those of the nodes that keep the locks.
func (c Config) quorumFaults() (faults []error) {
	if len(c.Quorum.Nodes) == 0 {
		return nil
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	seen := map[string]bool{} // by address: another database is no other node
	for _, node := range c.Quorum.Nodes {
		switch {
		case !node.Single():
			fault("quorum: %s is not a redis://, rediss:// or unix:// URL", node)
		case seen[node.Target().Addr]:
			fault("quorum: %s is named twice", node)
		}
		seen[node.Target().Addr] = true
	}
	if len(c.Quorum.Nodes) < minNodes {
		fault("quorum: %d nodes are too few, of less than %d none may fail", len(c.Quorum.Nodes), minNodes)
	}
	if c.Upstream.URL.Embedded() {
		fault("quorum: needs an upstream for the data")
	}
	if _, sharded := c.Upstream.URL.Cluster(); sharded {
		fault("quorum: not available with a cluster upstream yet")
	}
	if c.Quorum.MaxLease < c.Locks.WatchdogTimeout {
		fault("quorum-max-lease: %v is below lock-watchdog-timeout's %v", c.Quorum.MaxLease, c.Locks.WatchdogTimeout)
	}
	if c.Quorum.MaxLease > mostMaxLease {
		fault("quorum-max-lease: %v is above %v", c.Quorum.MaxLease, mostMaxLease)
	}
	if longest := c.Locks.WatchdogTimeout / 10; c.Quorum.NodeTimeout > longest {
		fault("quorum-node-timeout: %v is above a tenth of lock-watchdog-timeout, %v", c.Quorum.NodeTimeout, longest)
	}
	return faults
}
