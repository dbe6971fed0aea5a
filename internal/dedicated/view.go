package dedicated

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/cluster"
)

// View is what other goroutines may see of a client's own connection, at any time.
type View struct {
	Channels, Patterns, Shards atomic.Int32
	Multi                      atomic.Int32 // commands queued, plus one; 0: no transaction
	Blocked                    atomic.Bool
	Watch, Monitor             atomic.Bool
	Watched                    atomic.Int32                 // keys
	RedisID                    atomic.Int64                 // CLIENT ID at Redis; 0: there is none
	Node                       atomic.Pointer[cluster.Node] // where it is, in a cluster
	Named                      atomic.Int32                 // others are using RedisID: no other client may get the connection
	Targets                    atomic.Int32                 // redirections of other clients' invalidations to it
	Tracking                   TrackingView
}

// TrackingView is what others may see of CLIENT TRACKING.
type TrackingView struct {
	On, BCast atomic.Bool
	redirect  atomic.Int64 // our number of the client that gets the invalidations
}

// show updates the view. Whoever reads calls it.
func (p *Conn) show() {
	v, s := p.View, &p.said.state
	if p.Node == nil { // else subscriptions have connections of their own
		v.Channels.Store(int32(s.subs.number[OfChannel]))
		v.Patterns.Store(int32(s.subs.number[OfPattern]))
		v.Shards.Store(int32(s.subs.number[OfShard]))
	}
	multi := int32(0)
	if s.multi() {
		multi = int32(s.transaction.queued) + 1
	}
	v.Multi.Store(multi)
	v.Watch.Store(s.watched > 0)
	v.Watched.Store(int32(s.watched))
	last := s.tracking
	v.Tracking.On.Store(last.On)
	v.Tracking.BCast.Store(last.BCast)
	v.Tracking.redirect.Store(last.To.Client)
	v.Monitor.Store(s.monitor)
	v.Blocked.Store(p.said.pending.blocks() && !s.multi())
	id := int64(0)
	if !p.over {
		id = p.conn.RedisID()
	}
	v.RedisID.Store(id)
	v.Node.Store(p.Node)
}

// Subscribed says that the client waits for messages.
func (v *View) Subscribed() bool {
	return v.Channels.Load()+v.Patterns.Load()+v.Shards.Load() > 0
}

// Busy says that the client is in a transaction, or watches keys: a drain lets it finish.
func (v *View) Busy() bool { return v.Multi.Load() > 0 || v.Watch.Load() }

// Hears says that the client waits for messages.
func (v *View) Hears() bool { return v.Subscribed() || v.Monitor.Load() }

// Redirected is the redir field of CLIENT INFO: -1 without tracking, 0 when the client gets its invalidations itself.
func (v *View) Redirected() int64 {
	if !v.Tracking.On.Load() {
		return -1
	}
	return v.Tracking.redirect.Load()
}
