package node

import (
	"context"

	"github.com/lockproxy/lockproxy/scripts"
)

// PubSub says over which channels wake-ups go on a cluster.
type PubSub string

const (
	// PubSubSharded uses SPUBLISH only, as Redisson since 3.22 by itself: the other nodes hear nothing of it.
	PubSubSharded PubSub = "sharded"
	// PubSubBoth publishes, and listens, both ways, where Redissons of both kinds work with the same locks. Every release
	// is then passed to all nodes, so that more masters bring no more locks.
	PubSubBoth PubSub = "both"
	// PubSubClassic uses PUBLISH only, which every node passes to all others: before Redis 7, for Redisson before 3.22,
	// and where shardedSubscriptionMode is OFF.
	PubSubClassic PubSub = "classic"
)

// Verb is what the scripts are told to publish with.
func (p PubSub) Verb() string {
	switch p {
	case PubSubSharded:
		return "SPUBLISH"
	case PubSubClassic:
		return Publish
	}
	return "BOTH"
}

// Publish is the command that wakes waiters on a Redis that is no cluster.
const Publish = "PUBLISH"

// Ways says for each subscriber that a node needs whether it is for sharded channels.
func (p PubSub) Ways() []bool {
	switch p {
	case PubSubSharded:
		return []bool{true}
	case PubSubClassic:
		return []bool{false}
	}
	return []bool{true, false}
}

// publishesWith is the command with which the scripts publish at a node of a cluster: what is asked for, if the node
// has it. unheard is how many channels of locks somebody hears there by SUBSCRIBE, if that command tells those nothing.
func (n *Node) publishesWith(asked PubSub) (verb string, unheard int64, err error) {
	client, err := n.Control.Client(0)
	if err != nil {
		return "", 0, err
	}
	known, err := client.Do(context.Background(),
		client.B().Arbitrary("EVAL").Args(scripts.Publishes.Source, "0").Build()).AsIntSlice()
	if err != nil {
		return "", 0, Outcome(err)
	}
	if len(known) < 3 {
		return "", 0, errOdd(scripts.Publishes.Name)
	}
	sharded, classic := known[0] == 1, known[1] == 1
	switch {
	case !sharded:
		return PubSubClassic.Verb(), 0, nil
	case !classic || asked == PubSubSharded:
		return PubSubSharded.Verb(), known[2], nil
	}
	return asked.Verb(), 0, nil
}
