package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What is kept of a client's subscriptions counts as long as they are there: not when their connection upstream is lost, and once when
// they have been made again.
func TestMemoryOfLostSubscriptions(t *testing.T) {
	t.Parallel()
	const channels = 2000
	for _, locks := range []bool{false, true} {
		t.Run(fmt.Sprint("locks ", locks), func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			way := testredis.NewProxy(t, server.Addr())
			p := harness.StartProxy(t, "redis://"+way.Addr())
			held := func() float64 { return p.Metric("lockproxy_reply_memory_bytes") }
			was := ""
			madeAgain := func() bool {
				for line := range strings.Lines(string(server.Do(t, "CLIENT", "LIST", "TYPE", "pubsub").([]byte))) {
					if id, _, _ := strings.Cut(line, " "); strings.Contains(line, fmt.Sprintf(" sub=%d ", channels)) && id != was {
						was = id
						return true
					}
				}
				return false
			}
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
			before := held()
			if before == 0 || !madeAgain() {
				t.Fatal("the subscriptions count for nothing")
			}
			for range 3 {
				if way.CutAll(); !locks {
					break
				}
				harness.Eventually(t, "they are made again", madeAgain)
				harness.Eventually(t, "they count as before", func() bool { return held() == before })
			}
			w.Close()
			harness.Eventually(t, "nothing is held for a client that has gone", func() bool { return held() == 0 })
		})
	}
}
