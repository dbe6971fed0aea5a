package session

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/cluster"
)

// dedicatedView is what others may see of a session's own connection.
type dedicatedView struct {
	channels, patterns, shards atomic.Int32
	multi                      atomic.Int32 // commands queued, plus one; 0: no transaction
	blocked                    atomic.Bool
	watch, tracking, monitor   atomic.Bool
	watched                    atomic.Int32 // keys
	pending                    atomic.Bool
	redisID                    atomic.Int64                 // 0: there is none
	node                       atomic.Pointer[cluster.Node] // where it is, in a cluster
	named                      atomic.Int32                 // others tell Redis its number: it must not become another client's
	bcast                      atomic.Bool
	targets                    atomic.Int32 // clients whose invalidations may come to it
	redirect                   atomic.Int64 // our number of the client that gets the invalidations
}

// show brings the session's view up to date; mu is held.
func (p *dedicated) show() {
	v, t := p.view, &p.state
	multi := int32(0)
	if t.multi {
		multi = int32(t.queued) + 1
	}
	if p.node == nil { // else see subscriptions
		v.channels.Store(int32(t.channels))
		v.patterns.Store(int32(t.patterns))
		v.shards.Store(int32(t.shards))
	}
	v.multi.Store(multi)
	v.watch.Store(t.watch)
	watched := int32(0)
	if t.watch {
		watched = int32(t.watched)
	}
	v.watched.Store(watched)
	v.tracking.Store(t.tracking)
	v.bcast.Store(t.bcast)
	v.redirect.Store(t.redirect.client)
	v.monitor.Store(t.monitor)
	v.pending.Store(len(p.pending) > 0)
	v.blocked.Store(!t.multi && p.blocked())
	id := int64(0)
	if !p.released && p.conn != nil {
		id = p.conn.RedisID()
	}
	v.redisID.Store(id)
	v.node.Store(p.node)
}

// subscribed says that the client waits for messages.
func (v *dedicatedView) subscribed() bool {
	return v.channels.Load()+v.patterns.Load()+v.shards.Load() > 0
}

// busy says that the client is within something: a drain lets it finish.
func (v *dedicatedView) busy() bool { return v.multi.Load() > 0 || v.watch.Load() || v.pending.Load() }
