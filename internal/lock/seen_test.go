package lock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What an operator is shown of a hold: its lease, its renewals; then its loss; and how often others were refused.
func TestWhatIsSeenOfAHold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		mustLock(t, a, Request{Key: "short", Lease: 60000})
		time.Sleep(25 * time.Second)
		if _, err := b.Lock(t.Context(), Request{Key: "k"}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		for _, e := range m.List("", "") {
			lease, renewals := 30*time.Second, int64(2)
			if e.Key == "short" {
				lease, renewals = time.Minute, 0
			}
			if e.Lease != lease || e.Renewals != renewals || e.Left <= 0 || e.Left > lease {
				t.Errorf("%+v", e)
			}
		}
		if st := m.Stats(); st.Refused != 1 || len(m.Losses()) != 0 {
			t.Errorf("%+v, lost: %v", st, m.Losses())
		}
		mustUnlock(t, b, UnlockRequest{Key: "k", Force: true}, true)
		time.Sleep(time.Second)
		all := m.Losses()
		if len(all) != 1 || all[0].Key != "k" || all[0].Owner != a.Owner() || all[0].Reason != "forced" || all[0].Addr == "" || time.Since(all[0].At) > time.Second {
			t.Errorf("%+v", all)
		}
		a.Close(Gone)
		b.Close(Gone)
	})
}

// The last losses are kept, and no more.
func TestLossesAreBounded(t *testing.T) {
	m := &Manager{lossLog: newLossLog(testLog())}
	for i := range 2*lossesRecent + 7 {
		m.lossLog.add(Lost{ID: lockstore.ID{Key: fmt.Sprint(i)}})
		all := m.Losses()
		if len(all) != min(i+1, lossesRecent) || all[0].Key != fmt.Sprint(i) || all[len(all)-1].Key != fmt.Sprint(max(0, i+1-lossesRecent)) {
			t.Fatalf("after %d: %d, from %s to %s", i, len(all), all[0].Key, all[len(all)-1].Key)
		}
	}
}
