package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What is kept of very many subscriptions counts, until their node dies and their client is closed.
func TestClusterManySubscriptionsCount(t *testing.T) {
	t.Parallel()
	const many = 30_000
	tc := testredis.StartCluster(t, 3, 0, testredis.QuickFailover)
	p := harness.StartClusterProxy(t, tc)
	s := &subscriber{harness.Dial3(t, p.Addr()), t, ">"}
	words := []string{"SUBSCRIBE"}
	for i := range many {
		words = append(words, fmt.Sprint("news", i))
	}
	s.Send(words...)
	for i := range many {
		s.confirmed("subscribe", fmt.Sprint("news", i), i+1)
	}
	held := func() float64 { return p.Metric("lockproxy_reply_memory_bytes") }
	if held() < many*64 {
		t.Error("the subscriptions count for nothing")
	}
	killed := false
	for _, server := range tc.Servers {
		if strings.Contains(string(server.Do(t, "CLIENT", "LIST", "TYPE", "pubsub").([]byte)), fmt.Sprintf(" sub=%d ", many)) {
			server.Kill()
			killed = true
		}
	}
	if !killed {
		t.Fatal("nobody has the subscriptions")
	}
	if !s.Closed() {
		t.Error("its client is still there")
	}
	harness.Eventually(t, "nothing is held for a client that has gone", func() bool { return held() == 0 })
}

// manySubscriptions is a line of CLIENT LIST: proxies themselves subscribe to a few channels.
var manySubscriptions = regexp.MustCompile(` sub=\d{3,} `)

// A node that hangs for a moment while a client subscribes there is waited for once it has confirmed a part: the client
// stays, and each channel is confirmed once, in order.
func TestClusterNodeHangsWithinASubscribe(t *testing.T) {
	t.Parallel()
	const many = 20_000
	channel := func(i int) string { return fmt.Sprintf("%01000d", i) } // the sockets do not take all of it: much stays in Redis
	tc := testredis.StartCluster(t, 3, 0, "--client-output-buffer-limit pubsub 0 0 0")
	p := harness.StartClusterProxy(t, tc)
	s := &subscriber{harness.Dial3(t, p.Addr()), t, ">"}
	words := []string{"SUBSCRIBE"}
	for i := range many {
		words = append(words, channel(i))
	}
	s.Send(words...)
	s.confirmed("subscribe", channel(0), 1)
	var at []*testredis.Server
	for _, server := range tc.Servers {
		if manySubscriptions.Match(server.Do(t, "CLIENT", "LIST").([]byte)) {
			server.Stop()
			at = append(at, server)
		}
	}
	if len(at) != 1 {
		t.Fatalf("%d nodes have the subscriptions", len(at))
	}
	time.Sleep(time.Second)
	at[0].Cont()
	for i := 1; i < many; i++ {
		s.confirmed("subscribe", channel(i), i+1)
	}
	hears(t, harness.Dial(t, p.Addr()), []*subscriber{s}, "PUBLISH", words[1])
	hears(t, harness.Dial(t, p.Addr()), []*subscriber{s}, "PUBLISH", words[many])
}
