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

// The slots of sharded channels move, to and fro: their subscribers are not told, and hear what is published then.
func TestClusterSubscriptionsFollowSlots(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	publisher := harness.Dial(t, p.Addr())
	subs := subscribers(t, p.Addr())
	channels := []string{"{x}1", "{x}2", "y", "z"}
	for _, s := range subs {
		harness.Expect(t, s.Wire, ok, "CLIENT", "SETNAME", "listener"+s.mark)
		s.Send(append([]string{"SSUBSCRIBE"}, channels...)...)
		for i, channel := range channels {
			s.confirmed("ssubscribe", channel, i+1)
		}
	}
	var gap time.Duration // from a slot's move to a message that is heard
	for i := range 6 {
		moveElsewhere(t, tc, slots.Slot([]byte("x")))
		moved := time.Now()
		hears(t, publisher, subs, "SPUBLISH", "{x}1")
		gap = max(gap, time.Since(moved))
		if i%2 == 0 {
			moveElsewhere(t, tc, slots.Slot([]byte("y")))
		}
		for _, channel := range channels {
			hears(t, publisher, subs, "SPUBLISH", channel)
		}
	}
	t.Logf("heard again at most %v after the move", gap)
	if info := publisher.Do("INFO", "lockproxy"); strings.Contains(info, "lockproxy_cluster_resubscribed:0\r\n") {
		t.Error("nothing was subscribed to again")
	}
	for _, s := range subs {
		s.Send("SUNSUBSCRIBE", "y")
		s.confirmed("sunsubscribe", "y", 3)
		s.Send("SSUBSCRIBE", "y")
		s.confirmed("ssubscribe", "y", 4)
	}
	hears(t, publisher, subs, "SPUBLISH", "y")
}

// Masters change places with their replicas, and die: subscriptions of both kinds go on at others.
func TestClusterSubscriptionsSurviveNodes(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1)
	p := harness.StartClusterProxy(t, tc, "--cluster-retry", "20s")
	publisher := harness.Dial(t, p.Addr())
	subs := subscribers(t, p.Addr())
	for _, s := range subs {
		s.Send("SSUBSCRIBE", "x")
		s.confirmed("ssubscribe", "x", 1)
		s.Send("SUBSCRIBE", "news")
		s.confirmed("subscribe", "news", 1)
		s.Send("PSUBSCRIBE", "old*")
		s.confirmed("psubscribe", "old*", 2)
	}
	if err := tc.Failover(replicaOf(t, tc, slots.Slot([]byte("x")))); err != nil {
		t.Fatal(err)
	}
	hears(t, publisher, subs, "SPUBLISH", "x")
	harness.Eventually(t, "all agree", func() bool { return tc.WaitOK() == nil })
	replica := replicaOf(t, tc, slots.Slot([]byte("x")))
	master, err := tc.Owner(slots.Slot([]byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	killMaster(t, tc, master, replica)
	hears(t, publisher, subs, "SPUBLISH", "x")
	for _, server := range tc.Servers { // a node where somebody hears of the news; nobody could take over from the replica
		if server != master && server != replica && server.Do(t, "PUBSUB", "NUMSUB", "news").([]any)[1] != int64(0) {
			if err := tc.Watchful(true); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			break
		}
	}
	for _, channel := range []string{"news", "older"} {
		harness.Eventually(t, "it is heard everywhere", func() bool {
			got, err := publisher.Try("PUBSUB", "NUMSUB", "news")
			if err != nil { // it was asked of the node that has died
				publisher = harness.Dial(t, p.Addr())
			}
			return strings.Contains(got, ":2\r\n")
		})
		hears(t, publisher, subs, "PUBLISH", channel)
	}
}

// A subscriber that is killed at Redis is closed, as Redis closed it, and so is one that may not subscribe again.
func TestClusterSubscribersEnd(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	for _, s := range tc.Servers {
		s.Do(t, "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
	}
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
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, ok, "AUTH", "app", "secret")
	w.Do("SSUBSCRIBE", "x")
	from, err := tc.Owner(slots.Slot([]byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range tc.Servers {
		if s != from {
			s.Do(t, "ACL", "SETUSER", "app", "resetchannels")
		}
	}
	moveElsewhere(t, tc, slots.Slot([]byte("x")))
	if !w.Closed() {
		t.Error("still there")
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
	if got := w.Do("PUBSUB", "CHANNELS"); got != "*1\r\n$1\r\na\r\n" {
		t.Errorf("got %q", got)
	}
	harness.Expect(t, w, "-ERR 'MONITOR' is of one node: lockproxy does not send it to a cluster\r\n", "MONITOR")
}
