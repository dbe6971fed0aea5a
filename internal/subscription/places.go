package subscription

import (
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
)

// places are a client's subscriptions, each with the connection that it is on. What there is to know of all of them is
// kept up with each change, never counted anew: each has a confirmation, and a client may have very many.
type places struct {
	on    map[dedicated.Subscription]*subscriptionConn
	kinds [3]int // how many there are of each kind
	bytes int    // about
	kept  downstream.Account
	view  *dedicated.View
}

func newPlaces(kept downstream.Account, v *dedicated.View) places {
	return places{on: map[dedicated.Subscription]*subscriptionConn{}, kept: kept, view: v}
}

// put notes where a subscription is.
func (w *places) put(sub dedicated.Subscription, c *subscriptionConn) {
	_, there := w.on[sub]
	w.on[sub] = c
	if !there {
		w.count(sub, 1)
	}
}

// drop forgets a subscription, if there is one.
func (w *places) drop(sub dedicated.Subscription) {
	if _, there := w.on[sub]; there {
		delete(w.on, sub)
		w.count(sub, -1)
	}
}

// clear forgets all.
func (w *places) clear() {
	for sub := range w.on {
		w.drop(sub)
	}
}

func (w *places) count(sub dedicated.Subscription, more int) {
	w.kinds[sub.Kind] += more
	w.bytes += more * sub.Bytes()
	w.view.Channels.Store(int32(w.kinds[dedicated.OfChannel]))
	w.view.Patterns.Store(int32(w.kinds[dedicated.OfPattern]))
	w.view.Shards.Store(int32(w.kinds[dedicated.OfShard]))
	w.kept.Set(w.bytes)
}

// number is what Redis counts in the confirmations of a kind.
func (w *places) number(k dedicated.SubscriptionKind) int {
	if k == dedicated.OfShard {
		return w.kinds[dedicated.OfShard]
	}
	return w.kinds[dedicated.OfChannel] + w.kinds[dedicated.OfPattern]
}
