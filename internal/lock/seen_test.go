package lock

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What an operator is shown of a hold: its lease, its renewals; then its loss; and how often others were refused.
func TestWhatIsSeenOfAHold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		mustLock(t, a, Request{Key: "short", Lease: 60000})
		time.Sleep(25 * time.Second)
		if _, err := b.Lock(t.Context(), Request{Key: "k"}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		for _, e := range m.List("", "") {
			lease, renewals := int64(30_000), int64(2)
			if e.Key == "short" {
				lease, renewals = 60_000, 0
			}
			if e.Lease != lease || e.Renewals != renewals || e.Left <= 0 || e.Left > lease {
				t.Errorf("%+v", e)
			}
		}
		if st := m.Stats(); st.Refused != 1 || len(lossesOf(m)) != 0 {
			t.Errorf("%+v, lost: %v", st, lossesOf(m))
		}
		mustUnlock(t, b, UnlockRequest{Key: "k", Force: true}, true)
		time.Sleep(time.Second)
		all := lossesOf(m)
		if len(all) != 1 || all[0].Key != "k" || all[0].Owner != a.Owner() || all[0].Reason != "forced" || all[0].Addr == "" || time.Since(all[0].At) > time.Second {
			t.Errorf("%+v", all)
		}
		a.Close(Gone)
		b.Close(Gone)
	})
}

// lossesOf are those that an engine has told of, and the ends of connections' holds that were asked for, the newest first.
func lossesOf(m *Manager) []events.Event {
	return m.opts.Events.Latest(math.MaxInt, "", func(e *events.Event) bool {
		return e.Kind == events.Loss || e.Kind == events.End && !lockstore.ValidOwner(e.Owner)
	})
}
