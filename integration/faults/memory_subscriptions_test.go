package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What is kept of a client's subscriptions counts as long as they are there: not when their connection upstream is lost, with which the
// client is closed.
func TestMemoryOfLostSubscriptions(t *testing.T) {
	t.Parallel()
	const channels = 2000
	for _, locks := range []bool{false, true} {
		t.Run(fmt.Sprint("locks ", locks), func(t *testing.T) {
			t.Parallel()
			way := testredis.NewProxy(t, testredis.Start(t).Addr())
			p := harness.StartProxy(t, "redis://"+way.Addr())
			held := func() float64 { return p.Metric("lockproxy_reply_memory_bytes") }
			w := harness.Dial3(t, p.Addr())
			if locks {
				harness.Expect(t, w, "+OK\r\n", "LOCK", "k", "EX", "600")
			}
			words := []string{"SUBSCRIBE"}
			for i := range channels {
				words = append(words, "news"+strings.Repeat("x", 30)+fmt.Sprint(i))
			}
			w.Send(words...)
			for range channels {
				w.Read()
			}
			if held() == 0 {
				t.Fatal("the subscriptions count for nothing")
			}
			way.CutAll()
			if !w.Closed() {
				t.Error("the client is still there")
			}
			harness.Eventually(t, "nothing is held for a client that has gone", func() bool { return held() == 0 })
		})
	}
}
