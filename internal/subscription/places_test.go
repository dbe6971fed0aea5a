package subscription

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// A confirmation costs the same however many subscriptions there are, and however many a command names.
func TestConfirmedOfMany(t *testing.T) {
	t.Parallel()
	const many = 50_000
	view := new(dedicated.View)
	x := &Subscriptions{where: newPlaces(downstream.Account{}, view)}
	c := &subscriptionConn{x: x}
	e := &dedicated.Reply{Cmd: &commandtable.Command{Name: "subscribe"}, Kind: commandtable.ConnSubscribe}
	for i := range many {
		e.Names = append(e.Names, fmt.Sprint("news", i))
		x.where.put(dedicated.Subscription{Name: fmt.Sprint("old", i)}, c)
	}
	began, number := time.Now(), many
	for len(e.Names) > 0 {
		number++
		frame := resp.AppendBulkString(resp.AppendBulkString(resp.AppendArray(nil, 3), "subscribe"), e.Names[0])
		n := dedicated.Confirmation{Verb: "subscribe", Of: dedicated.Subscription{Name: e.Names[0]}, Number: 1}
		if out, asked := c.Confirmed(n, e, 2); !asked || string(out) != string(resp.AppendInt(frame, int64(number))) {
			t.Fatalf("%q: asked %v", out, asked)
		}
		e.Names = e.Names[1:]
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("%d confirmations took %v", many, took)
	}
	if n := view.Channels.Load(); n != 2*many {
		t.Errorf("%d channels are shown", n)
	}
}

// So does a further subscription to keyspace notifications.
func TestManyEvents(t *testing.T) {
	t.Parallel()
	const many = 50_000
	x := &Subscriptions{where: newPlaces(downstream.Account{}, new(dedicated.View))}
	e := &eventConn{}
	v := &events{x: x, at: map[*cluster.Node]*eventConn{nil: e}, wanted: subscriptionSet{}}
	began := time.Now()
	for i := range many {
		sub := dedicated.Subscription{Name: fmt.Sprint(eventPrefixes[0], i)}
		e.changed = subscriptionSet{}
		v.want(subscriptionSet{sub: {}})
		if x.where.put(sub, nil); i%2 == 1 {
			x.where.drop(sub)
		}
		v.want(nil)
		if len(e.changed) != 1 || len(v.wanted) != i/2+1 {
			t.Fatalf("%d have changed, %d are wanted", len(e.changed), len(v.wanted))
		}
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("%d subscriptions took %v", many, took)
	}
	v.want(subscriptionSet{{Name: eventPrefixes[1]}: {}})
	if v.want(nil); len(v.wanted) != many/2 {
		t.Errorf("%d are wanted when one was refused", len(v.wanted))
	}
}

// What is counted goes up and down with the subscriptions, once for each.
func TestPlacesCount(t *testing.T) {
	t.Parallel()
	w := newPlaces(downstream.Account{}, new(dedicated.View))
	c := new(subscriptionConn)
	for range 2 {
		for kind := range dedicated.SubscriptionKind(3) {
			w.put(dedicated.Subscription{Kind: kind, Name: "a"}, c)
			w.put(dedicated.Subscription{Kind: kind, Name: "a"}, nil)
		}
	}
	if w.kinds != [3]int{1, 1, 1} || w.bytes == 0 || w.number(dedicated.OfPattern) != 2 || w.number(dedicated.OfShard) != 1 || w.view.Patterns.Load() != 1 {
		t.Errorf("got %+v", w.kinds)
	}
	w.drop(dedicated.Subscription{Name: "a"})
	w.drop(dedicated.Subscription{Name: "a"})
	w.drop(dedicated.Subscription{Name: "b"})
	if w.kinds != [3]int{0, 1, 1} || w.number(dedicated.OfChannel) != 1 {
		t.Errorf("got %+v", w.kinds)
	}
	if w.clear(); w.kinds != [3]int{} || w.bytes != 0 || w.view.Shards.Load() != 0 {
		t.Errorf("got %+v, %d bytes", w.kinds, w.bytes)
	}
}

// What becomes of one subscription. It is on connection 1 or 2, to be made again (?), or there is none (-).
func TestPlacesOfASubscription(t *testing.T) {
	t.Parallel()
	one, two := &subscriptionConn{as: upstream.Identity{User: "u"}}, &subscriptionConn{}
	sub := dedicated.Subscription{Name: "news"}
	events := map[string]func(w *places) bool{
		"put 1":    func(w *places) bool { w.put(sub, one); return true },
		"put 2":    func(w *places) bool { w.put(sub, two); return true },
		"lose 1":   func(w *places) bool { return w.lose(sub, one) },
		"lose 2":   func(w *places) bool { return w.lose(sub, two) },
		"regain 2": func(w *places) bool { return w.regain(sub, two) },
		"drop":     func(w *places) bool { w.drop(sub); return true },
	}
	place := func(w *places) string {
		at, there := w.on[sub]
		as, lost := w.lost[sub]
		switch {
		case !there && !lost:
			return "-"
		case there && at == nil && lost && as == one.as:
			return "?"
		case at == one && !lost:
			return "1"
		case at == two && !lost:
			return "2"
		}
		return "wrong"
	}
	before := map[string][]string{"-": nil, "1": {"put 1"}, "?": {"put 1", "lose 1"}}
	for _, c := range []struct {
		from, event string
		did         bool
		to          string
	}{
		{"-", "put 1", true, "1"}, {"-", "lose 1", false, "-"}, {"-", "regain 2", false, "-"}, {"-", "drop", true, "-"},
		{"1", "put 2", true, "2"}, {"1", "lose 1", true, "?"}, {"1", "lose 2", false, "1"}, {"1", "regain 2", false, "1"}, {"1", "drop", true, "-"},
		{"?", "put 2", true, "2"}, {"?", "lose 1", false, "?"}, {"?", "regain 2", true, "2"}, {"?", "drop", true, "-"},
	} {
		w := newPlaces(downstream.Account{}, new(dedicated.View))
		for _, event := range before[c.from] {
			events[event](&w)
		}
		did := events[c.event](&w)
		if to := place(&w); did != c.did || to != c.to {
			t.Errorf("%s at %s: %v, then %s", c.event, c.from, did, to)
		}
		if want := min(len(w.on), 1); w.kinds[sub.Kind] != want {
			t.Errorf("%s at %s: %d are counted", c.event, c.from, w.kinds[sub.Kind])
		}
	}
}

// A connection that this proxy has closed, because its node did not answer in time, was not closed by Redis: its
// client is not closed for it.
func TestEndedOfGivenUp(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		x := &Subscriptions{where: newPlaces(downstream.Account{}, new(dedicated.View)), woken: make(chan struct{}, 1)}
		c := &subscriptionConn{x: x, p: Link{Conn: &dedicated.Conn{Config: dedicated.Config{Node: new(cluster.Node)}}}}
		c.asks(true)
		c.asks(asked)
		x.where.put(dedicated.Subscription{Name: "news"}, c)
		if c.Ended(); len(x.where.lost) != 1 || len(x.woken) != 1 || (len(x.dead) == 0) != asked {
			t.Errorf("asked %v: %d are lost, %d connections were closed by Redis", asked, len(x.where.lost), len(x.dead))
		}
	}
}
