package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Who gives up waiting for subscriptions has the messages noted that may be missed until then; who has enough of them has not.
func TestAwaitNotesWhatIsMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		enough, failing bool
		takes           time.Duration
		missed          int
	}{
		"enough":  {enough: true},
		"failing": {failing: true, missed: 1},
		"late":    {takes: subscribeWait, missed: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, missed := time.Now(), 0
			err := Await(context.Background(), nil, func() (<-chan struct{}, bool, bool) { return nil, c.enough, c.failing }, func() { missed++ })
			if err != nil || missed != c.missed || time.Since(began) != c.takes {
				t.Errorf("%s: missed %d, after %v, %v", name, missed, time.Since(began), err)
			}
		})
	}
}
