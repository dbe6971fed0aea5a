package dedicated

import (
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Restorable is the part of a connection's state that is made again if the connection is lost and its client is not closed for it.
type Restorable struct {
	wanted   bool // false in a cluster, where subscriptions have connections of their own
	subs     map[Subscription]struct{}
	tracking []Effect // the calls of CLIENT TRACKING that are in force
	bytes    int      // of it all, about
}

// Subscription is what a client has subscribed to.
type Subscription struct {
	Kind SubscriptionKind
	Name string
}

// SubscriptionKind is which of the three families of commands a subscription belongs to.
type SubscriptionKind uint8

const (
	OfChannel SubscriptionKind = iota
	OfPattern
	OfShard
)

// SubscribeVerbs and UnsubscribeVerbs are the commands of each kind.
var (
	SubscribeVerbs   = [...]string{OfChannel: "subscribe", OfPattern: "psubscribe", OfShard: "ssubscribe"}
	UnsubscribeVerbs = [...]string{OfChannel: "unsubscribe", OfPattern: "punsubscribe", OfShard: "sunsubscribe"}
)

// SubscriptionIn returns the subscription that a confirmation with these elements is about; ends: it confirms the subscription's end.
func SubscriptionIn(elems []resp.Reply) (sub Subscription, ends bool) {
	verb := string(elems[0].Text)
	if end := slices.Index(UnsubscribeVerbs[:], verb); end >= 0 {
		return Subscription{SubscriptionKind(end), string(elems[1].Text)}, true
	}
	return Subscription{SubscriptionKind(slices.Index(SubscribeVerbs[:], verb)), string(elems[1].Text)}, false
}

// subscriptionBytes is what a subscription takes beside its name.
const subscriptionBytes = 64

// Bytes is how much is kept for a subscription, about.
func (s Subscription) Bytes() int { return len(s.Name) + subscriptionBytes }

// confirmed takes the confirmation of a subscription, or of its end.
func (h *Restorable) confirmed(frame []byte) {
	if !h.wanted {
		return
	}
	r, ok := resp.ParseReply(frame)
	if !ok || len(r.Elems) != 3 || r.Elems[1].Null {
		return
	}
	sub, ends := SubscriptionIn(r.Elems)
	_, there := h.subs[sub]
	switch {
	case ends && there:
		delete(h.subs, sub)
		h.bytes -= sub.Bytes()
	case !ends && !there:
		if h.subs == nil {
			h.subs = map[Subscription]struct{}{}
		}
		h.subs[sub] = struct{}{}
		h.bytes += sub.Bytes()
	}
}

// tracks takes a CLIENT TRACKING that Redis has agreed to. Only those with BCAST add to the ones before.
func (h *Restorable) tracks(e Effect) {
	if !e.On || !e.BCast {
		for _, was := range h.tracking {
			h.bytes -= len(was.Call)
		}
		h.tracking = nil
	}
	if e.On && !slices.Contains(h.tracking, e) {
		h.tracking = append(h.tracking, e)
		h.bytes += len(e.Call)
	}
}

// Remains is what was lost with a connection and is to be made again.
type Remains struct {
	Restorable
	monitor bool
	Mute    bool // the client speaks RESP2, and is subscribed
}

// remains returns what of this connection is to be made again; false: nothing is. mu is held.
func (p *Conn) remains() (what Remains, any bool) {
	t := &p.state
	any = !p.life.making && p.interceptor == nil && t.kept.wanted && (t.monitor || t.tracking.on || t.subscribed() > 0)
	return Remains{t.kept, t.monitor, t.mute()}, any
}

// Call is a command of the proxy's own.
type Call struct {
	*Reply
	Raw []byte
}

// RemadeAtOnce is how many subscriptions are made again by one call, which is to be answered in time however many there are.
const RemadeAtOnce = 1000

// Calls are what is to be sent on another connection. find looks up a command.
func (r *Remains) Calls(find func(verb string) *commandtable.Command) (all []Call) {
	add := func(k commandtable.ConnKind, args int, f Effect, words ...string) {
		e := &Reply{Cmd: find(words[0]), Kind: k, Args: args, Effect: f, Own: true, Got: new([]byte)}
		all = append(all, Call{e, resp.AppendCommand(nil, words...)})
	}
	for _, f := range r.tracking {
		add(commandtable.ConnTracking, 0, f, "CLIENT")
		all[len(all)-1].Raw = []byte(f.Call)
	}
	for kind, verb := range SubscribeVerbs {
		var names []string
		for sub := range r.subs {
			if sub.Kind == SubscriptionKind(kind) {
				names = append(names, sub.Name)
			}
		}
		for some := range slices.Chunk(names, RemadeAtOnce) {
			add(commandtable.ConnSubscribe, len(some), Effect{}, append([]string{verb}, some...)...)
		}
	}
	if r.monitor {
		add(commandtable.ConnMonitor, 0, Effect{}, "MONITOR")
	}
	return all
}

// Remaking keeps the replies and confirmations on this connection from the client, until Made.
func (p *Conn) Remaking() {
	p.mu.Lock()
	p.life.making = true
	p.mu.Unlock()
}

// Made ends Remaking if agree says so: it is the client's from then on.
func (p *Conn) Made(agree func() bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.released || !agree() {
		return false
	}
	p.life.making = false
	return true
}

// Redo closes the connection, and makes again on another one what it had, unless it was about to be made here. If the client has a part of a
// message, the rest comes first, unless ctx ends.
func (p *Conn) Redo(ctx context.Context) {
	p.awaitWhole(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.released {
		return
	}
	what, any := p.remains()
	p.dropLocked()
	if any {
		p.Host.Remake(what)
	}
}

// ForgetAll tells a client in RESP3 that nothing it has cached is valid.
var ForgetAll = append(resp.AppendBulkString(resp.AppendPush(nil, 3, 2), "invalidate"), "_\r\n"...)
