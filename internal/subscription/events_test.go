package subscription

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
)

func TestIsEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind dedicated.SubscriptionKind
		name string
		want bool
	}{
		{dedicated.OfChannel, "__keyspace@0__:k", true}, {dedicated.OfChannel, "__keyevent@0__:del", true}, {dedicated.OfChannel, "__key", false}, {dedicated.OfChannel, "news", false}, {dedicated.OfChannel, "*", false},
		{dedicated.OfPattern, "__keyevent@*", true}, {dedicated.OfPattern, "__key*__:*", true}, {dedicated.OfPattern, "*", true}, {dedicated.OfPattern, "?_keyspace@0__:a", true},
		{dedicated.OfPattern, "_[_]keyspace*", true}, {dedicated.OfPattern, `\__keyspace*`, true}, {dedicated.OfPattern, "news.*", false}, {dedicated.OfPattern, "__keyx*", false},
		{dedicated.OfShard, "__keyspace@0__:k", false},
	} {
		if got := isEvents(dedicated.Subscription{Kind: c.kind, Name: c.name}); got != c.want {
			t.Errorf("%v %q: %v", c.kind, c.name, got)
		}
	}
}

// What a message is, is known as soon as enough of it is there, and never said wrongly before. Of a keyspace
// notification its subscription is known then, too.
func TestEventMessage(t *testing.T) {
	t.Parallel()
	channel := func(name string) dedicated.Subscription {
		return dedicated.Subscription{Kind: dedicated.OfChannel, Name: name}
	}
	pattern := func(name string) dedicated.Subscription {
		return dedicated.Subscription{Kind: dedicated.OfPattern, Name: name}
	}
	no := dedicated.Subscription{}
	for _, c := range []struct {
		frame string
		is    bool
		sub   dedicated.Subscription
	}{
		{"*3\r\n" + bulk("message", "__keyspace@0__:k", "del"), true, channel("__keyspace@0__:k")},
		{">3\r\n" + bulk("message", "__keyevent@0__:del", "k"), true, channel("__keyevent@0__:del")},
		{"*4\r\n" + bulk("pmessage", "*", "__keyevent@0__:del", "k"), true, pattern("*")},
		{"*4\r\n" + bulk("pmessage", "__keyevent@*", "news", "k"), false, no},
		{"*4\r\n" + bulk("pmessage", "*", "n", strings.Repeat("__keyspace@", 9)), false, no},
		{"*3\r\n" + bulk("message", "", ""), false, no},
		{">3\r\n" + bulk("smessage", "__keyspace@0__:k", "x"), false, no},
		{"*4\r\n" + bulk("pmessage", "a\r\n$11\r\n__keyspace@*", "b", "c"), false, no},
	} {
		for n := strings.Index(c.frame, "ssage") + 7; n <= len(c.frame); n++ {
			sub, is, known := eventMessage([]byte(c.frame[:n]))
			if known && (is != c.is || is && sub != c.sub) || n == len(c.frame) && !known {
				t.Errorf("the first %d bytes of %q: %v of %v, known %v", n, c.frame, is, sub, known)
			}
		}
	}
}

// A keyspace notification is passed on while the client is subscribed: not before its confirmation, and not after that
// of the end.
func TestEventsOfSubscribers(t *testing.T) {
	t.Parallel()
	x := &Subscriptions{where: newSubscribed(downstream.Account{}, new(dedicated.View))}
	c := &subscriptionConn{x: x, use: forEvents}
	frames := map[dedicated.Subscription][]byte{
		{Kind: dedicated.OfChannel, Name: "__keyevent@0__:del"}: []byte("*3\r\n" + bulk("message", "__keyevent@0__:del", "k")),
		{Kind: dedicated.OfPattern, Name: "*"}:                  []byte("*4\r\n" + bulk("pmessage", "*", "__keyevent@0__:del", "k")),
	}
	passes := func(sub dedicated.Subscription, want bool) {
		t.Helper()
		if others, known := c.Others(frames[sub]); others == want || !known {
			t.Errorf("%v: passed on %v, known %v", sub, !others, known)
		}
	}
	for sub := range frames {
		passes(sub, false)
		x.where.put(sub, nil)
		passes(sub, true)
		x.where.drop(sub)
		passes(sub, false)
	}
}

// A client listens to the masters that there are, in whatever order.
func TestSameMasters(t *testing.T) {
	t.Parallel()
	a, b, c := new(cluster.Node), new(cluster.Node), new(cluster.Node)
	for _, x := range []struct {
		before, now []*cluster.Node
		want        bool
	}{
		{[]*cluster.Node{a, b}, []*cluster.Node{b, a}, true},
		{[]*cluster.Node{a, b}, []*cluster.Node{a, c}, false},
		{[]*cluster.Node{a, b}, []*cluster.Node{a, b, c}, false},
		{[]*cluster.Node{a, b}, []*cluster.Node{a}, false},
	} {
		if got := same(x.before, x.now); got != x.want {
			t.Errorf("%v and %v: %v", x.before, x.now, got)
		}
	}
}

// bulk is bulk strings one behind the other.
func bulk(words ...string) string {
	s := ""
	for _, w := range words {
		s += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return s
}
