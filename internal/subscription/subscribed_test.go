package subscription

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// A confirmation costs the same however many subscriptions there are, and however many a command names.
func TestConfirmedOfMany(t *testing.T) {
	t.Parallel()
	const many = 50_000
	view := new(dedicated.View)
	x := &Subscriptions{where: newSubscribed(downstream.Account{}, view)}
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

// What is counted goes up and down with the subscriptions, once for each.
func TestPlacesCount(t *testing.T) {
	t.Parallel()
	w := newSubscribed(downstream.Account{}, new(dedicated.View))
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

// Where a subscription is, and what its client is told: of each confirmation but of those for keyspace notifications. An
// end that nobody has asked for tells it that the slot has moved.
func TestConfirmed(t *testing.T) {
	t.Parallel()
	row := &commandtable.Command{Name: "ssubscribe"}
	asks := func(names ...string) *dedicated.Reply {
		return &dedicated.Reply{Cmd: row, Kind: commandtable.ConnSubscribe, Names: names}
	}
	x := &Subscriptions{where: newSubscribed(downstream.Account{}, new(dedicated.View))}
	one, two, events := &subscriptionConn{x: x, use: forShards}, &subscriptionConn{x: x, use: forShards}, &subscriptionConn{x: x, use: forEvents}
	sub := func(name string) dedicated.Subscription {
		return dedicated.Subscription{Kind: dedicated.OfShard, Name: name}
	}
	for _, c := range []struct {
		why   string
		by    *subscriptionConn
		n     dedicated.Confirmation
		e     *dedicated.Reply
		asked bool
		told  string
		on    map[dedicated.Subscription]*subscriptionConn
	}{
		{"asked for", one, dedicated.Confirmation{Verb: "ssubscribe", Of: sub("a")}, asks("a"), true, ":1", map[dedicated.Subscription]*subscriptionConn{sub("a"): one}},
		{"another one", two, dedicated.Confirmation{Verb: "ssubscribe", Of: sub("b")}, asks("b"), true, ":2", map[dedicated.Subscription]*subscriptionConn{sub("a"): one, sub("b"): two}},
		{"again", two, dedicated.Confirmation{Verb: "ssubscribe", Of: sub("a")}, asks("a"), true, ":2", map[dedicated.Subscription]*subscriptionConn{sub("a"): two, sub("b"): two}},
		{"for events", events, dedicated.Confirmation{Verb: "ssubscribe", Of: sub("c")}, asks("c"), true, "", map[dedicated.Subscription]*subscriptionConn{sub("a"): two, sub("b"): two}},
		{"its slot has moved", two, dedicated.Confirmation{Verb: "sunsubscribe", Of: sub("a"), Ends: true}, nil, false, ":1", map[dedicated.Subscription]*subscriptionConn{sub("b"): two}},
		{"so it has while another is asked for", two, dedicated.Confirmation{Verb: "sunsubscribe", Of: sub("b"), Ends: true}, asks("d"), false, ":0", map[dedicated.Subscription]*subscriptionConn{}},
	} {
		told, asked := c.by.Confirmed(c.n, c.e, 3)
		if asked != c.asked || (len(told) == 0) != (c.told == "") || !strings.HasSuffix(string(told), c.told+"\r\n") && c.told != "" || !maps.Equal(x.where.on, c.on) {
			t.Errorf("%s: asked %v, told %q, on %v", c.why, asked, told, x.where.on)
		}
	}
}
