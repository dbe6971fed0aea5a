package session

import (
	"slices"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// restorable is what of a connection's state is made again when it is lost under a client that is not closed for it: see restore.
type restorable struct {
	wanted   bool // in a cluster subscriptions have connections of their own: see subscriptions
	subs     map[subscription]struct{}
	tracking []effect // the calls of CLIENT TRACKING that are in force
	bytes    int      // of it all, about
}

// subscriptionBytes is what a subscription takes beside its name.
const subscriptionBytes = 64

// confirmed takes the confirmation of a subscription, or of its end.
func (h *restorable) confirmed(verb string, frame []byte) {
	if !h.wanted {
		return
	}
	r, ok := resp.ParseReply(frame)
	if !ok || len(r.Elems) != 3 || r.Elems[1].Null {
		return
	}
	ends := slices.Index(unsubscribeVerbs[:], verb)
	sub := subscription{subscriptionKind(max(ends, slices.Index(subscribeVerbs[:], verb))), string(r.Elems[1].Text)}
	_, there := h.subs[sub]
	switch {
	case ends >= 0 && there:
		delete(h.subs, sub)
		h.bytes -= len(sub.name) + subscriptionBytes
	case ends < 0 && !there:
		if h.subs == nil {
			h.subs = map[subscription]struct{}{}
		}
		h.subs[sub] = struct{}{}
		h.bytes += len(sub.name) + subscriptionBytes
	}
}

// tracks takes a CLIENT TRACKING that Redis has agreed to. Only those with BCAST add to the ones before.
func (h *restorable) tracks(e effect) {
	if !e.on || !e.bcast {
		for _, was := range h.tracking {
			h.bytes -= len(was.call)
		}
		h.tracking = nil
	}
	if e.on && !slices.Contains(h.tracking, e) {
		h.tracking = append(h.tracking, e)
		h.bytes += len(e.call)
	}
}
