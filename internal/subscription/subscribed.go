package subscription

import (
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
)

// subscribed are a client's subscriptions, each with the connection that it is on. What there is to know of all of them
// is kept up with each change, never counted anew: each has a confirmation, and a client may have very many.
type subscribed struct {
	on    map[dedicated.Subscription]*subscriptionConn
	kinds [3]int // how many there are of each kind
	bytes int    // about
	kept  downstream.Account
	view  *dedicated.View
}

func newSubscribed(kept downstream.Account, v *dedicated.View) subscribed {
	return subscribed{on: map[dedicated.Subscription]*subscriptionConn{}, kept: kept, view: v}
}

// put notes where a subscription is.
func (w *subscribed) put(sub dedicated.Subscription, c *subscriptionConn) {
	_, there := w.on[sub]
	w.on[sub] = c
	if !there {
		w.count(sub, 1)
	}
}

// drop forgets a subscription, if there is one.
func (w *subscribed) drop(sub dedicated.Subscription) {
	if _, there := w.on[sub]; there {
		delete(w.on, sub)
		w.count(sub, -1)
	}
}

// clear forgets all.
func (w *subscribed) clear() {
	for sub := range w.on {
		w.drop(sub)
	}
}

func (w *subscribed) count(sub dedicated.Subscription, more int) {
	w.kinds[sub.Kind] += more
	w.bytes += more * sub.Bytes()
	w.view.Channels.Store(int32(w.kinds[dedicated.OfChannel]))
	w.view.Patterns.Store(int32(w.kinds[dedicated.OfPattern]))
	w.view.Shards.Store(int32(w.kinds[dedicated.OfShard]))
	w.kept.Set(w.bytes)
}

// number is what Redis counts in the confirmations of a kind.
func (w *subscribed) number(k dedicated.SubscriptionKind) int {
	if k == dedicated.OfShard {
		return w.kinds[dedicated.OfShard]
	}
	return w.kinds[dedicated.OfChannel] + w.kinds[dedicated.OfPattern]
}
