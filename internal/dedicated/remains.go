package dedicated

import (
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Remains is what was lost with a connection, and is made again on another one if its client is not closed for the
// loss.
type Remains struct {
	subs     subscriptions
	tracking []Tracking
	monitor  bool
	Mute     bool // the client speaks RESP2, and is subscribed
}

// remains returns what is to be made again if the connection is lost; nil: nothing is.
func (s *State) remains() *Remains {
	if !s.monitor && len(s.tracking.calls)+len(s.subs.all) == 0 {
		return nil
	}
	return &Remains{s.subs, s.tracking.calls, s.monitor, s.mute()}
}

// Call is a command of the proxy's own.
type Call struct {
	*Reply
	Raw []byte
}

// RemadeAtOnce is how many subscriptions are made again by one call, which is to be answered in time however many there
// are.
const RemadeAtOnce = 1000

// Calls are what is to be sent on another connection. find looks up a command.
func (r *Remains) Calls(find func(verb string) *commandtable.Command) (all []Call) {
	add := func(e Reply, raw []byte, verb string) {
		e.Cmd, e.Own, e.Got = find(verb), true, new([]byte)
		all = append(all, Call{&e, raw})
	}
	for _, call := range r.tracking {
		add(Reply{Kind: commandtable.ConnTracking, Effect: call}, []byte(call.Call), "client")
	}
	for kind, verb := range SubscribeVerbs {
		for names := range slices.Chunk(slices.Sorted(r.subs.names(SubscriptionKind(kind))), RemadeAtOnce) {
			words := append([]string{verb}, names...)
			add(Reply{Kind: commandtable.ConnSubscribe, Args: len(names)}, resp.AppendCommand(nil, words...), verb)
		}
	}
	if r.monitor {
		add(Reply{Kind: commandtable.ConnMonitor}, resp.AppendCommand(nil, "MONITOR"), "monitor")
	}
	return all
}

// Remaking says that what was lost is made again here, until Made: should this connection be lost, too, its user tries
// another one.
func (p *Conn) Remaking() {
	p.mu.Lock()
	p.life = remaking
	p.mu.Unlock()
}

// Made ends Remaking if agree says so: it is the client's from then on.
func (p *Conn) Made(agree func() bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.over() || !agree() {
		return false
	}
	p.life = held
	return true
}

// remains returns what is to be made again if the connection is lost now. What is not made whole is made again by
// whoever makes it.
func (p *Conn) remains() *Remains {
	if p.life == remaking {
		return nil
	}
	return p.said.state.remains()
}

// Redo closes the connection, and makes again on another one what it had, unless it was about to be made here. If the
// client has a part of a message, the rest comes first, unless ctx ends.
func (p *Conn) Redo(ctx context.Context) {
	p.awaitWhole(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.over() {
		return
	}
	what := p.remains()
	p.drop()
	if what != nil {
		p.Host.Remake(*what)
	}
}
