package node

import (
	"context"

	"github.com/lockproxy/lockproxy/scripts"
)

// PubSub says over which channels wake-ups go on a cluster.
type PubSub string

const (
	// PubSubBoth publishes, and listens, both ways: for whatever else works with the same locks.
	PubSubBoth PubSub = "both"
	// PubSubSharded uses SPUBLISH only, as Redisson of today by itself: the other nodes hear nothing of it.
	PubSubSharded PubSub = "sharded"
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
// has it.
func (n *Node) publishesWith(asked PubSub) (string, error) {
	client, err := n.Control.Client(0)
	if err != nil {
		return "", err
	}
	known, err := client.Do(context.Background(),
		client.B().Arbitrary("EVAL").Args(scripts.Publishes.Source, "0", "SPUBLISH", "PUBLISH").Build()).AsIntSlice()
	if err != nil {
		return "", Outcome(err)
	}
	if len(known) < 2 {
		return "", errOdd(scripts.Publishes.Name)
	}
	sharded, classic := known[0] == 1, known[1] == 1
	switch {
	case !sharded:
		return PubSubClassic.Verb(), nil
	case !classic:
		return PubSubSharded.Verb(), nil
	}
	return asked.Verb(), nil
}
