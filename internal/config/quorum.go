package config

import (
	"fmt"
	"time"
)

// Nodes of a quorum: with less than minNodes none may fail, and a time-out below minNodeTimeout leaves none to answer.
const (
	minNodes       = 3
	minNodeTimeout = 5 * time.Millisecond
)

// quorumFaults are those of the nodes that keep the locks.
func (c Config) quorumFaults() (faults []error) {
	if len(c.Quorum) == 0 {
		return nil
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	seen := map[string]bool{} // by address: another database is no other node
	for _, node := range c.Quorum {
		switch {
		case !node.Single():
			fault("quorum: %s is not a redis://, rediss:// or unix:// URL", node)
		case seen[node.Target.Addr]:
			fault("quorum: %s is named twice", node)
		}
		seen[node.Target.Addr] = true
	}
	if len(c.Quorum) < minNodes {
		fault("quorum: %d nodes are too few, of less than %d none may fail", len(c.Quorum), minNodes)
	}
	switch {
	case c.Upstream.Embedded():
		fault("quorum: needs an upstream for the data")
	case c.Upstream.Cluster != nil:
		fault("quorum: not available with a cluster upstream yet")
	}
	if c.QuorumMaxLease < c.LockWatchdogTimeout {
		fault("quorum-max-lease: %v is below lock-watchdog-timeout's %v", c.QuorumMaxLease, c.LockWatchdogTimeout)
	}
	if longest := c.LockWatchdogTimeout / 10; c.QuorumNodeTimeout < minNodeTimeout || c.QuorumNodeTimeout > longest {
		fault("quorum-node-timeout: %v is not from %v to a tenth of lock-watchdog-timeout, %v", c.QuorumNodeTimeout, minNodeTimeout, longest)
	}
	return faults
}
