package subscription

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Messages are told to all nodes of a cluster, but keyspace notifications are told by the node that has the key, and by no other. A
// client that listens for them therefore has one more connection to each master, on which it is subscribed to the same
// channels and patterns. Those connections pass on notifications only, the others everything else, so that nothing comes
// twice. They follow the topology.

// The channels of keyspace notifications begin so.
const (
	keyspacePrefix = "__keyspace@"
	keyeventPrefix = "__keyevent@"
)

// eventRetry is when a master is tried again that could not be subscribed at.
const eventRetry = time.Second

// isEvents says whether a subscription may be for keyspace notifications. A pattern is when what stands before its first
// wildcard does not rule them out.
func isEvents(sub dedicated.Subscription) bool {
	name := sub.Name
	switch sub.Kind {
	case dedicated.OfChannel:
		return isEventChannel([]byte(name))
	case dedicated.OfPattern:
		if wild := strings.IndexAny(name, `*?[\`); wild >= 0 {
			name = name[:wild]
		}
		begins := func(prefix string) bool { return strings.HasPrefix(prefix, name) || strings.HasPrefix(name, prefix) }
		return begins(keyspacePrefix) || begins(keyeventPrefix)
	default:
		return false
	}
}

func isEventChannel(name []byte) bool {
	return bytes.HasPrefix(name, []byte(keyspacePrefix)) || bytes.HasPrefix(name, []byte(keyeventPrefix))
}

// eventMessage says whether a message, of which at least the beginning is there, is a keyspace notification; known is false when
// more of it is needed to tell.
func eventMessage(frame []byte) (is, known bool) {
	before := 1 // elements ahead of the channel
	switch dedicated.FirstText(frame) {
	case "message":
	case "pmessage":
		before = 2
	default:
		return false, true
	}
	_, rest, _ := bytes.Cut(frame, []byte("\r\n"))
	for range before {
		size, body, ok := bulkHead(rest)
		if !ok || len(body) < size+2 {
			return false, false
		}
		rest = body[size+2:]
	}
	size, name, ok := bulkHead(rest)
	if !ok || len(name) < min(size, len(keyspacePrefix)) {
		return false, false
	}
	return isEventChannel(name), true
}

// bulkHead reads the length of a bulk string.
func bulkHead(b []byte) (size int, body []byte, ok bool) {
	line, body, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) < 2 || line[0] != '$' {
		return 0, nil, false
	}
	size, err := strconv.Atoi(string(line[1:]))
	return size, body, err == nil && size >= 0
}

// events are a client's connections for keyspace notifications.
type events struct {
	x     *Subscriptions
	ended chan struct{} // closed when follow has ended
	woken chan struct{} // one slot: the topology, the subscriptions or a connection have changed

	// Who has the turn of the subscriptions may use these.
	as upstream.Identity
	at map[*cluster.Node]*eventConn
}

// eventConn is the connection to one master.
type eventConn struct {
	*subscriptionConn
	has map[dedicated.Subscription]bool
}

// subscribeEvents has those of the names that may be for keyspace notifications subscribed to at all masters, before the client
// is told that it is subscribed. Masters that cannot be reached follow when they can. The caller has the turn.
func (x *Subscriptions) subscribeEvents(kind dedicated.SubscriptionKind, names [][]byte) {
	var more []dedicated.Subscription
	for _, name := range names {
		if sub := (dedicated.Subscription{Kind: kind, Name: string(name)}); isEvents(sub) {
			more = append(more, sub)
		}
	}
	if len(more) == 0 {
		return
	}
	v := x.events.Load()
	if v == nil {
		v = &events{x: x, ended: make(chan struct{}), woken: make(chan struct{}, 1), at: map[*cluster.Node]*eventConn{}}
		x.events.Store(v)
		x.Listeners.add(v)
		go v.follow()
	}
	v.as = x.Host.Identity()
	if !v.cover(more) {
		v.wake()
	}
}

// wake has follow look again.
func (v *events) wake() { retry.Wake(v.woken) }

// end waits for follow; the context of the subscriptions has ended.
func (v *events) end() {
	v.x.Listeners.remove(v)
	<-v.ended
}

// follow is the goroutine that keeps one connection to each master.
func (v *events) follow() {
	defer close(v.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-v.x.ctx.Done():
			return
		case <-v.woken:
		case <-timer.C:
		}
		if !v.x.take() {
			return
		}
		next := time.Hour
		if !v.cover(nil) {
			next = eventRetry
		}
		v.x.giveTurn()
		timer.Reset(next)
	}
}

// wanted are the subscriptions that the client has, and more.
func (v *events) wanted(more []dedicated.Subscription) map[dedicated.Subscription]bool {
	want := map[dedicated.Subscription]bool{}
	for _, sub := range more {
		want[sub] = true
	}
	v.x.mu.Lock()
	defer v.x.mu.Unlock()
	for sub := range v.x.where {
		if isEvents(sub) {
			want[sub] = true
		}
	}
	return want
}

// cover subscribes at every master to what the client is subscribed to, and to more, and then lets connections go that are no
// master's any more. It says whether all is done. The caller has the turn.
func (v *events) cover(more []dedicated.Subscription) (all bool) {
	want, all := v.wanted(more), true
	var masters []*cluster.Node
	if len(want) > 0 {
		masters = v.x.Nodes.Snapshot().Masters
	}
	for _, n := range masters {
		all = v.coverAt(n, want) && all
	}
	for n, e := range v.at {
		if !slices.Contains(masters, n) {
			e.p.End()
			delete(v.at, n)
		}
	}
	return all
}

// coverAt brings one master's subscriptions in line.
func (v *events) coverAt(n *cluster.Node, want map[dedicated.Subscription]bool) bool {
	e := v.at[n]
	if e == nil || !e.keep() {
		p, err := v.x.Host.Connect(v.x.ctx, v.as, n)
		if err != nil {
			return false
		}
		e = &eventConn{&subscriptionConn{x: v.x, p: p, events: true, id: v.as, since: time.Now()}, map[dedicated.Subscription]bool{}}
		p.Intercept(e.subscriptionConn)
		v.x.all = append(v.x.all, e.subscriptionConn)
		v.at[n] = e
	}
	defer e.rest()
	for _, kind := range []dedicated.SubscriptionKind{dedicated.OfChannel, dedicated.OfPattern} {
		if !v.say(e, dedicated.SubscribeVerbs[kind], missing(kind, want, e.has)) || !v.say(e, dedicated.UnsubscribeVerbs[kind], missing(kind, e.has, want)) {
			return false
		}
	}
	e.has = want
	return true
}

// missing are the names of a kind that one set has and the other has not.
func missing(kind dedicated.SubscriptionKind, of, from map[dedicated.Subscription]bool) (names []string) {
	for sub := range of {
		if sub.Kind == kind && !from[sub] {
			names = append(names, sub.Name)
		}
	}
	return names
}

// say sends a command of the SUBSCRIBE family and waits for its confirmations.
func (v *events) say(e *eventConn, verb string, names []string) bool {
	if len(names) == 0 {
		return true
	}
	cmd := v.x.Host.Find(verb)
	var refusal []byte
	o := &dedicated.Reply{Cmd: cmd, Kind: commandtable.ConnSubscribe, Own: true, Got: &refusal, Names: names}
	return v.x.call(e.p, o, resp.AppendCommand(nil, append([]string{verb}, names...)...)) && len(refusal) == 0
}

// Others implements dedicated.Interceptor: a keyspace notification comes to the client by the connection to its master,
// everything else by the client's ordinary connection for subscriptions.
func (c *subscriptionConn) Others(frame []byte) (others, known bool) {
	listens := c.events || c.x.events.Load() != nil
	is, known := eventMessage(frame)
	return is != c.events && listens, known || !listens
}

// Listeners are the sessions that have asked for keyspace notifications.
type Listeners struct {
	mu  sync.Mutex // a leaf
	all map[*events]struct{}
}

func (l *Listeners) add(v *events) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*events]struct{}{}
	}
	l.all[v] = struct{}{}
}

func (l *Listeners) remove(v *events) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, v)
}

// TopologyChanged is told that there are other nodes, or other slots at them.
func (l *Listeners) TopologyChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for v := range l.all {
		v.wake()
	}
}
