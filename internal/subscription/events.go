package subscription

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Messages reach all nodes of a cluster, but a keyspace notification is published by the node that has the key, and by
// no other. A client that listens for them therefore has one more connection to each master, on which it is subscribed
// to the same channels and patterns. Those connections pass on notifications only, the others everything else, so that
// nothing comes twice. They follow the topology.

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

// events are a client's connections for keyspace notifications. Whoever has the turn of the subscriptions may use them.
type events struct {
	x      *Subscriptions
	as     upstream.Identity // without a protocol
	at     map[*cluster.Node]*eventConn
	wanted subscriptionSet
}

type subscriptionSet map[dedicated.Subscription]struct{}

// eventConn is the connection to one master.
type eventConn struct {
	*subscriptionConn
	has     subscriptionSet
	changed subscriptionSet // since it was brought in line; the rest is
}

// subscribeEvents has those of the names that may be for keyspace notifications subscribed to at all masters, before
// the client is told that it is subscribed. Masters that cannot be reached follow when they can; to one to which there
// may be no connection the client would listen in vain, so that is an error. The caller has the turn.
func (x *Subscriptions) subscribeEvents(kind dedicated.SubscriptionKind, names [][]byte) error {
	more := subscriptionSet{}
	for _, name := range names {
		if sub := (dedicated.Subscription{Kind: kind, Name: string(name)}); isEvents(sub) {
			more[sub] = struct{}{}
		}
	}
	if len(more) == 0 {
		return nil
	}
	v := x.events.Load()
	if v == nil {
		v = &events{x: x, at: map[*cluster.Node]*eventConn{}, wanted: subscriptionSet{}}
		x.events.Store(v)
		x.Listeners.add(x)
	}
	v.as = x.Client.Identity()
	v.as.Proto = 0
	err := v.cover(more)
	if err != nil {
		x.wake()
	}
	if client.TooMany(err) {
		return err
	}
	return nil
}

// want brings wanted in line with what the client is subscribed to, and more, which it is about to be. Only what has
// changed is looked at: a client may be subscribed to very much.
func (v *events) want(more subscriptionSet) {
	v.x.mu.Lock()
	defer v.x.mu.Unlock()
	changed := v.x.where.changed
	v.x.where.changed = nil
	for sub := range more { // looked at again the next time: the client may be refused it
		changed = append(changed, sub)
		v.x.where.changed = append(v.x.where.changed, sub)
	}
	for _, sub := range changed {
		_, there := v.x.where.on[sub]
		if _, soon := more[sub]; there || soon {
			v.wanted[sub] = struct{}{}
		} else {
			delete(v.wanted, sub)
		}
		for _, e := range v.at {
			e.changed[sub] = struct{}{}
		}
	}
}

// cover subscribes at every master to what the client is subscribed to, and to more, and then lets connections go that
// are no master's any more. The error is a *upstream.FullError if there may be no connection to one, else that of one
// that was not reached. The caller has the turn.
func (v *events) cover(more subscriptionSet) (err error) {
	v.want(more)
	var masters []*cluster.Node
	if len(v.wanted) > 0 {
		masters = v.x.Nodes.Snapshot().Masters
	}
	for _, n := range masters {
		if failed := v.coverAt(n); failed != nil && !client.TooMany(err) {
			err = failed
		}
	}
	for n, e := range v.at {
		if !slices.Contains(masters, n) {
			e.p.End()
			delete(v.at, n)
		}
	}
	return err
}

// coverAt brings one master's subscriptions in line.
func (v *events) coverAt(n *cluster.Node) error {
	e := v.at[n]
	if e == nil || !e.hold() {
		c, err := v.x.connect(v.x.ctx, &subscriptionConn{use: forEvents, as: v.as}, n)
		if err != nil {
			return err
		}
		e = &eventConn{c, subscriptionSet{}, maps.Clone(v.wanted)}
		v.at[n] = e
	}
	defer e.rest()
	var begin, end [2][]string
	for sub := range e.changed {
		_, wanted := v.wanted[sub]
		switch _, has := e.has[sub]; {
		case wanted == has:
			delete(e.changed, sub)
		case wanted:
			begin[sub.Kind] = append(begin[sub.Kind], sub.Name)
		default:
			end[sub.Kind] = append(end[sub.Kind], sub.Name)
		}
	}
	for _, kind := range []dedicated.SubscriptionKind{dedicated.OfChannel, dedicated.OfPattern} {
		if e.say(dedicated.SubscribeVerbs[kind], begin[kind]) {
			e.note(kind, begin[kind], true)
		}
		if e.say(dedicated.UnsubscribeVerbs[kind], end[kind]) {
			e.note(kind, end[kind], false)
		}
	}
	if len(e.changed) > 0 { // this master refuses some to the client's user, or has not answered
		return errNotServed
	}
	e.changed = subscriptionSet{} // the old one would keep its size
	return nil
}

// note remembers what the master has confirmed.
func (e *eventConn) note(kind dedicated.SubscriptionKind, names []string, has bool) {
	for _, name := range names {
		sub := dedicated.Subscription{Kind: kind, Name: name}
		delete(e.changed, sub)
		if has {
			e.has[sub] = struct{}{}
		} else {
			delete(e.has, sub)
		}
	}
}

// say sends a command of the SUBSCRIBE family and waits for its confirmations.
func (e *eventConn) say(verb string, all []string) bool {
	for names := range slices.Chunk(all, dedicated.RemadeAtOnce) {
		if e.call(verb, names) != nil {
			return false
		}
	}
	return true
}

// Others implements dedicated.Interceptor: a keyspace notification comes to the client by the connection to its
// master, everything else by the client's ordinary connection for subscriptions. The masters have a subscription
// before it is confirmed to the client, and for a moment after its end: what they tell then is not for the client,
// which may take it for a reply.
func (c *subscriptionConn) Others(frame []byte) (others, known bool) {
	forThem := c.use == forEvents
	if !forThem && c.x.events.Load() == nil {
		return false, true
	}
	by, is, known := eventMessage(frame)
	if !forThem || !is {
		return is != forThem, known
	}
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	_, subscribed := c.x.where.on[by]
	return !subscribed, known
}

// Listeners are the subscriptions of those clients that have asked for keyspace notifications.
type Listeners struct {
	mu  sync.Mutex // a leaf
	all map[*Subscriptions]struct{}
}

func (l *Listeners) add(x *Subscriptions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*Subscriptions]struct{}{}
	}
	l.all[x] = struct{}{}
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
	for x := range l.all {
		x.wake()
	}
}
