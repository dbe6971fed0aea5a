package lock

import (
	"log/slog"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// Reentry says when a connection may take again a lock it holds as its implicit owner.
type Reentry string

const (
	// ReentryAuto refuses it on a connection that has named a client library: in a pool two threads would both "re-enter".
	ReentryAuto Reentry = "auto"
	// ReentryAlways allows it on every connection.
	ReentryAlways Reentry = "always"
	// ReentryNever wants OWNER or SELF on every connection.
	ReentryNever Reentry = "never"
)

// PubSub says over which channels wake-ups go on a cluster.
type PubSub = node.PubSub

// Options set up a Manager. A zero field has the default named beside it.
type Options struct {
	Watchdog     time.Duration // lease of a lock taken without EX or PX, renewed at a third of it: 30 s, Redisson's lockWatchdogTimeout
	Poll         time.Duration // longest time between two tries of a waiter that no message wakes: 3 s
	FairWait     time.Duration // what Redisson's fair waiters wait (its fairLockWaitTimeout): 5 min, as there
	Grace        time.Duration // time between a client's disconnect and the release of its locks: 0
	OwnerGrace   time.Duration // time for which a named owner's lock is still renewed when its connection has gone: 0
	MaxHold      time.Duration // a watched lock is not renewed beyond it: 0, off
	FenceTTL     time.Duration // TTL of fencing tokens: 0, none, as Redisson
	Reentry      Reentry       // ReentryAuto
	WarmChannels int           // channels nobody waits on that stay subscribed: 1024
	Quorum       QuorumOptions // none: the locks are on one node
	Logger       *slog.Logger  // slog.Default()

	// Cluster has the locks, each on the node of its slot. It is to live until Run has returned. nil: the Control's node has them.
	Cluster       *cluster.Cluster
	ClusterPubSub PubSub // PubSubBoth
}

func (o Options) withDefaults() Options {
	if o.Watchdog <= 0 {
		o.Watchdog = 30 * time.Second
	}
	if o.Poll <= 0 {
		o.Poll = 3 * time.Second
	}
	if o.FairWait <= 0 {
		o.FairWait = 5 * time.Minute
	}
	if o.Reentry == "" {
		o.Reentry = ReentryAuto
	}
	if o.WarmChannels <= 0 {
		o.WarmChannels = 1024
	}
	if o.ClusterPubSub == "" {
		o.ClusterPubSub = node.PubSubBoth
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}
