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
	Pending                    atomic.Int32                 // replies
	RedisID                    atomic.Int64                 // CLIENT ID at Redis; 0: there is none
	Node                       atomic.Pointer[cluster.Node] // where it is, in a cluster
	Named                      atomic.Int32                 // others are using RedisID: the connection must not go to another client
	Targets                    atomic.Int32                 // redirections of other clients' invalidations to it
	Tracking                   TrackingView
}

// TrackingView is what others may see of CLIENT TRACKING.
type TrackingView struct {
	On, BCast atomic.Bool
	redirect  atomic.Int64 // our number of the client that gets the invalidations
}

// show updates the view; mu is held.
func (p *Conn) show() {
	v, t := p.View, &p.state
	multi := int32(0)
	if t.multi {
		multi = int32(t.queued) + 1
	}
	if p.Node == nil { // else subscriptions have connections of their own
		v.Channels.Store(int32(t.subs.channels))
		v.Patterns.Store(int32(t.subs.patterns))
		v.Shards.Store(int32(t.subs.shards))
	}
	v.Multi.Store(multi)
	v.Watch.Store(t.watch)
	watched := int32(0)
	if t.watch {
		watched = int32(t.watched)
	}
	v.Watched.Store(watched)
	v.Tracking.On.Store(t.tracking.on)
	v.Tracking.BCast.Store(t.tracking.bcast)
	v.Tracking.redirect.Store(t.tracking.redirect.Client)
	v.Monitor.Store(t.monitor)
	v.Pending.Store(int32(len(p.pending.all)))
	v.Blocked.Store(!t.multi && p.pending.blocked())
	id := int64(0)
	if !p.life.released && p.conn != nil {
		id = p.conn.RedisID()
	}
	v.RedisID.Store(id)
	v.Node.Store(p.Node)
}

// Subscribed says that the client waits for messages.
func (v *View) Subscribed() bool {
	return v.Channels.Load()+v.Patterns.Load()+v.Shards.Load() > 0
}

// Busy says that the client is in a transaction, watches keys, or has replies pending: a drain lets it finish.
func (v *View) Busy() bool { return v.Multi.Load() > 0 || v.Watch.Load() || v.Pending.Load() > 0 }

// Redirected is the redir field of CLIENT INFO: -1 without tracking, 0 when the client gets its invalidations itself.
func (v *View) Redirected() int64 {
	if !v.Tracking.On.Load() {
		return -1
	}
	return v.Tracking.redirect.Load()
}
