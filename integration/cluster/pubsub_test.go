package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// subscriber is a client with subscriptions that goes by what it reads.
type subscriber struct {
	*harness.Wire
	t    *testing.T
	mark string // of its frames
}

// subscribers is a client of each protocol.
func subscribers(t *testing.T, addr string) []*subscriber {
	return []*subscriber{{harness.Dial(t, addr), t, "*"}, {harness.Dial3(t, addr), t, ">"}}
}

// confirmed reads a confirmation.
func (s *subscriber) confirmed(verb, channel string, count int) {
	s.t.Helper()
	name := fmt.Sprintf("$%d\r\n%s\r\n", len(channel), channel)
	if channel == "" {
		name = map[string]string{"*": "$-1\r\n", ">": "_\r\n"}[s.mark]
	}
	want := fmt.Sprintf("%s3\r\n$%d\r\n%s\r\n%s:%d\r\n", s.mark, len(verb), verb, name, count)
	if got := s.Read(); got != want {
		s.t.Fatalf("%q, want %q", got, want)
	}
}

// hears publishes until all hear of it, and wants the last message, and nothing but messages, to come.
func hears(t *testing.T, publisher *harness.Wire, subs []*subscriber, verb, channel string) {
	t.Helper()
	n := 0
	harness.Eventually(t, "all hear of "+channel, func() bool { // how many there are is no sign: after a failover they may be at the replica
		n++
		text, heard := fmt.Sprint(channel, "-", n), 0
		if _, err := publisher.Try(verb, channel, text); err != nil { // its command was at a node that died: it is closed, as by Redis
			publisher = harness.Dial(t, publisher.C.RemoteAddr().String())
		}
		for _, s := range subs {
			for !s.Silent(time.Second) { // it is lost while nodes learn who is dead
				if got := s.Read(); strings.Contains(got, "\r\n"+text+"\r\n") {
					heard++
					break
				} else if !strings.Contains(got, "message\r\n") {
					t.Fatalf("%q", got)
				}
			}
		}
		return heard == len(subs)
	})
}

// Sharded channels of many slots on one connection, in Redis' words: each is heard at its node, and counted.
func TestClusterShardedChannels(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	publisher := harness.Dial(t, p.Addr())
	for _, s := range subscribers(t, p.Addr()) {
		s.Send("SSUBSCRIBE", "a", "{a}2", "b", "c", "d", "a")
		for i, channel := range []string{"a", "{a}2", "b", "c", "d", "a"} {
			s.confirmed("ssubscribe", channel, min(i+1, 5))
		}
		s.Send("SUBSCRIBE", "news")
		s.confirmed("subscribe", "news", 1)
		s.Send("PSUBSCRIBE", "n*", "m*")
		s.confirmed("psubscribe", "n*", 2)
		s.confirmed("psubscribe", "m*", 3)
		for _, channel := range []string{"a", "{a}2", "b", "c", "d"} {
			hears(t, publisher, []*subscriber{s}, "SPUBLISH", channel)
		}
		id := strings.Trim(publisher.Do("CLIENT", "ID"), ":\r\n")
		if list := publisher.Do("CLIENT", "LIST", "TYPE", "pubsub"); !strings.Contains(list, " sub=1 psub=2 ssub=5 ") || strings.Contains(list, "id="+id+" ") {
			t.Errorf("%q", list)
		}
		s.Send("SUNSUBSCRIBE", "b", "never", "a")
		s.confirmed("sunsubscribe", "b", 4)
		s.confirmed("sunsubscribe", "never", 4)
		s.confirmed("sunsubscribe", "a", 3)
		harness.Expect(t, publisher, ":0\r\n", "SPUBLISH", "a", "x")
		s.Send("PING", "x")
		if got := s.Read(); got != map[string]string{"*": "*2\r\n$4\r\npong\r\n$1\r\nx\r\n", ">": "$1\r\nx\r\n"}[s.mark] {
			t.Errorf("%q", got)
		}
		s.Send("SUNSUBSCRIBE")
		s.confirmed("sunsubscribe", "c", 2)
		s.confirmed("sunsubscribe", "d", 1)
		s.confirmed("sunsubscribe", "{a}2", 0)
		s.Send("SUNSUBSCRIBE")
		s.confirmed("sunsubscribe", "", 0)
		s.Send("UNSUBSCRIBE")
		s.confirmed("unsubscribe", "news", 2)
		s.Send("PUNSUBSCRIBE", "n*", "m*")
		s.confirmed("punsubscribe", "n*", 1)
		s.confirmed("punsubscribe", "m*", 0)
		harness.Expect(t, s.Wire, "+PONG\r\n", "PING")
		harness.Expect(t, s.Wire, "-ERR wrong number of arguments for 'ssubscribe' command\r\n", "SSUBSCRIBE")
		s.Send("SSUBSCRIBE", "e")
		s.confirmed("ssubscribe", "e", 1)
		harness.Expect(t, s.Wire, "+RESET\r\n", "RESET")
		harness.Eventually(t, "nobody hears of e", func() bool { return publisher.Do("SPUBLISH", "e", "x") == ":0\r\n" }) // Redis frees a client a moment after
		s.Close()
	}
	for _, server := range tc.Servers {
		harness.Eventually(t, "nobody is subscribed", func() bool {
			return !strings.Contains(fmt.Sprintf("%s", server.Do(t, "CLIENT", "LIST", "TYPE", "pubsub")), "sub=1")
		})
	}
}

// The slots of sharded channels move, to and fro: Redis tells their subscribers, as it tells its own, and they may subscribe again.
func TestClusterSubscribersAreToldOfSlotsThatMove(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	publisher := harness.Dial(t, p.Addr())
	subs := subscribers(t, p.Addr())
	for _, s := range subs {
		s.Send("SSUBSCRIBE", "x", "y")
		s.confirmed("ssubscribe", "x", 1)
		s.confirmed("ssubscribe", "y", 2)
		s.Send("SUBSCRIBE", "news")
		s.confirmed("subscribe", "news", 1)
	}
	for range 4 {
		moveElsewhere(t, tc, slots.Slot([]byte("x")))
		for _, s := range subs {
			s.confirmed("sunsubscribe", "x", 1)
			s.Send("SSUBSCRIBE", "x")
			s.confirmed("ssubscribe", "x", 2)
		}
		hears(t, publisher, subs, "SPUBLISH", "x")
		hears(t, publisher, subs, "SPUBLISH", "y")
		hears(t, publisher, subs, "PUBLISH", "news")
	}
}

// When a node dies those are closed that have subscriptions there, whether they hold a lock or not, and nobody else.
func TestClusterSubscribersOfANodeThatDies(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	owner := func(channel string) *testredis.Server {
		s, err := tc.Owner(slots.Slot([]byte(channel)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	dies := owner("x")
	other := "a"
	for owner(other) == dies {
		other += "a"
	}
	var there []*harness.Wire
	for _, locks := range []bool{false, true} {
		w := harness.Dial(t, p.Addr())
		if locks {
			harness.Expect(t, w, ok, "LOCK", other, "EX", "600")
		}
		w.Do("SSUBSCRIBE", "x")
		there = append(there, w)
	}
	stays := &subscriber{harness.Dial3(t, p.Addr()), t, ">"}
	stays.Send("SSUBSCRIBE", other)
	stays.confirmed("ssubscribe", other, 1)
	dies.Kill()
	for _, w := range there {
		if !w.Closed() {
			t.Error("still there")
		}
	}
	hears(t, harness.Dial(t, p.Addr()), []*subscriber{stays}, "SPUBLISH", other)
}

// A subscriber that is killed at Redis is closed, as Redis closed it.
func TestClusterSubscribersEnd(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	for _, channel := range []string{"SUBSCRIBE news", "SSUBSCRIBE x"} {
		w := harness.Dial(t, p.Addr())
		w.Do(strings.Fields(channel)...)
		for _, s := range tc.Servers {
			s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
		}
		if !w.Closed() {
			t.Errorf("%s: still there", channel)
		}
	}
}

// PUBSUB NUMSUB and SHARDNUMSUB answer each name as often as it is asked for, in the order of the client's words.
func TestClusterNumsubOfNames(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	for range 3 { // at all nodes
		s := &subscriber{harness.Dial3(t, p.Addr()), t, ">"}
		s.Send("SUBSCRIBE", "a")
		s.confirmed("subscribe", "a", 1)
		s.Send("SSUBSCRIBE", "b")
		s.confirmed("ssubscribe", "b", 1)
	}
	w := harness.Dial(t, p.Addr())
	pairs := "*6\r\n$1\r\nb\r\n:%d\r\n$1\r\na\r\n:%d\r\n$1\r\na\r\n:%d\r\n"
	harness.Expect(t, w, fmt.Sprintf(pairs, 0, 3, 3), "PUBSUB", "NUMSUB", "b", "a", "a")
	harness.Expect(t, w, fmt.Sprintf(pairs, 3, 0, 0), "PUBSUB", "SHARDNUMSUB", "b", "a", "a")
	harness.Expect(t, w, "*0\r\n", "PUBSUB", "NUMSUB")
	if got := w.Do("PUBSUB", "CHANNELS", "?"); got != "*1\r\n$1\r\na\r\n" {
		t.Errorf("got %q", got)
	}
	harness.Expect(t, w, "-ERR 'MONITOR' is of one node: lockproxy does not send it to a cluster\r\n", "MONITOR")
}
