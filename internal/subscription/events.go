package subscription

import (
	"slices"
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Messages reach all nodes of a cluster, but a keyspace notification is published by the node that has the key, and by
// no other. A client that listens for them therefore has one more connection to each master, on which it is subscribed
// to the same channels and patterns. Those connections pass on notifications only, the others everything else, so that
// nothing comes twice. A client that listens is closed when the masters change, and subscribes anew.

// eventPrefixes are how the channels of keyspace notifications begin. They have the same length.
var eventPrefixes = [...]string{"__keyspace@", "__keyevent@"}

// isEvents says whether a subscription may be for keyspace notifications. A pattern may be, unless what stands before
// its first wildcard rules that out.
func isEvents(sub dedicated.Subscription) bool {
	switch sub.Kind {
	case dedicated.OfChannel:
		return isEventChannel(sub.Name)
	case dedicated.OfPattern:
		begins := sub.Name
		if wild := strings.IndexAny(begins, `*?[\`); wild >= 0 {
			begins = begins[:wild]
		}
		return mayBeEvents(begins)
	default:
		return false
	}
}

// mayBeEvents says whether the name of a channel for keyspace notifications may begin so.
func mayBeEvents(begins string) bool {
	return slices.ContainsFunc(eventPrefixes[:], func(prefix string) bool {
		n := min(len(prefix), len(begins))
		return prefix[:n] == begins[:n]
	})
}

func isEventChannel(name string) bool { return len(name) >= len(eventPrefixes[0]) && mayBeEvents(name) }

// eventMessage says whether a message, of which at least the beginning is there, is a keyspace notification, and by
// which subscription it has come; known is false when more of it is needed to tell.
func eventMessage(frame []byte) (by dedicated.Subscription, is, known bool) {
	at := 1 // the element that is the channel; that behind the verb is the subscription's name
	switch dedicated.FirstText(frame) {
	case "message":
	case "pmessage":
		by.Kind, at = dedicated.OfPattern, 2
	default:
		return by, false, true
	}
	channel, begun := resp.Element(frame, at)
	switch {
	case !begun:
		return by, false, false
	case !mayBeEvents(string(channel.Text)):
		return by, false, true
	case !channel.Whole:
		return by, false, false
	}
	name, _ := resp.Element(frame, 1)
	by.Name = string(name.Text)
	return by, isEventChannel(string(channel.Text)), true
}

// listen has those of the names that may be for keyspace notifications subscribed to at all masters, before the client is
// told that it is subscribed: at one that it does not listen to it would hear nothing.
func (x *Subscriptions) listen(c *commandtable.Command, kind dedicated.SubscriptionKind, names [][]byte) (cluster.Refusal, error) {
	names = eventNames(kind, names)
	if len(names) == 0 {
		return cluster.Refusal{}, nil
	}
	x.listens.Store(true)
	for _, n := range x.Listeners.add(x) {
		e, r, err := x.openFor(forEvents, n)
		if err == nil {
			_, err = x.sent(e, c, names)
			r = x.Nodes.RefusalIn(n, err)
		}
		if err != nil {
			return r, err
		}
	}
	return cluster.Refusal{}, nil
}

// unlisten ends what listen has begun, but for what the client is subscribed to.
func (x *Subscriptions) unlisten(kind dedicated.SubscriptionKind, names [][]byte) {
	names = slices.DeleteFunc(eventNames(kind, names), func(name []byte) bool { return x.at(kind, name) != nil })
	if len(names) == 0 || !x.listens.Load() {
		return
	}
	c := x.Routes.Load().Table.Find([][]byte{[]byte(dedicated.UnsubscribeVerbs[kind])})
	listens := false
	for _, e := range x.live() {
		if e.use == forEvents {
			_, _ = x.sent(e, c, names) // one that has not answered is closed, and its client with it
			listens = listens || e.p.Status().Subscribed
		}
	}
	if !listens {
		x.Listeners.remove(x)
	}
}

// eventNames are those of the names that may be for keyspace notifications.
func eventNames(kind dedicated.SubscriptionKind, names [][]byte) (events [][]byte) {
	for _, name := range names {
		if isEvents(dedicated.Subscription{Kind: kind, Name: string(name)}) {
			events = append(events, name)
		}
	}
	return events
}

// Others implements dedicated.Interceptor: a keyspace notification comes to the client by the connection to its
// master, everything else by the client's ordinary connection for subscriptions. The masters have a subscription
// before it is confirmed to the client, and for a moment after its end: what they tell then is not for the client,
// which may take it for a reply.
func (c *subscriptionConn) Others(frame []byte) (others, known bool) {
	forThem := c.use == forEvents
	if !forThem && !c.x.listens.Load() {
		return false, true
	}
	by, is, known := eventMessage(frame)
	if !forThem || !is {
		return is != forThem, known
	}
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	_, wanted := c.x.where.on[by]
	return !wanted, known
}

// Listeners are the subscriptions of those clients that listen for keyspace notifications, with the masters to which
// they listen.
type Listeners struct {
	mu  sync.Mutex // a leaf but for the end of a client
	all map[*Subscriptions][]*cluster.Node
}

// add adds a client's, and returns the masters.
func (l *Listeners) add(x *Subscriptions) []*cluster.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*Subscriptions][]*cluster.Node{}
	}
	if l.all[x] == nil {
		l.all[x] = x.Nodes.Snapshot().Masters
	}
	return l.all[x]
}

func (l *Listeners) remove(x *Subscriptions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, x)
}

// TopologyChanged is called when the nodes have changed, or their slots.
func (l *Listeners) TopologyChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x, masters := range l.all {
		if !same(masters, x.Nodes.Snapshot().Masters) {
			x.Client.End.Cut(downstream.Left, "it listens for keyspace notifications, and the masters of the cluster have changed")
		}
	}
}

// same says that the nodes are the same, in whatever order.
func same(nodes, others []*cluster.Node) bool {
	return len(nodes) == len(others) && !slices.ContainsFunc(nodes, func(n *cluster.Node) bool { return !slices.Contains(others, n) })
}
