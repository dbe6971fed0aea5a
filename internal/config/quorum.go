package config

import (
	"fmt"
	"strings"
	"time"
)

// Nodes of a quorum: with less than minNodes none may fail, and a time-out below minNodeTimeout leaves none to answer.
const (
	minNodes       = 3
	minNodeTimeout = 5 * time.Millisecond
)

// addressOf is what of a node's URL says where it is.
func addressOf(raw string) string {
	u, hosts, err := parseUpstream(raw)
	switch {
	case err != nil:
		return raw
	case u.Host == "":
		return u.Path
	case u.Port() == "":
		return strings.Join(hosts, ",") + ":6379"
	}
	return strings.Join(hosts, ",")
}

// quorumFaults are those of the nodes that keep the locks.
func (c Config) quorumFaults() (faults []error) {
	if len(c.Quorum) == 0 {
		return nil
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	seen := map[string]bool{} // by address: another database is no other node
	for _, raw := range c.Quorum {
		name := Printable(raw)
		switch {
		case !validUpstream(raw) || strings.Contains(raw, "+sentinel://"), strings.Contains(raw, "-cluster://"):
			fault("quorum: not a redis://, rediss:// or unix:// URL (not shown, it may hold a password)")
		case seen[addressOf(raw)]:
			fault("quorum: %s is named twice", name)
		}
		seen[addressOf(raw)] = true
	}
	if len(c.Quorum) < minNodes {
		fault("quorum: %d nodes are too few, of less than %d none may fail", len(c.Quorum), minNodes)
	}
	switch {
	case c.Upstream == "":
		fault("quorum: needs an upstream for the data")
	case strings.Contains(c.Upstream, "-cluster://"):
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
