package lock

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// idle says that the engine knows of no hold, and of nobody who waits.
func idle(m *Manager) bool {
	m.lines.mu.Lock()
	defer m.lines.mu.Unlock()
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	return len(m.holds.byID) == 0 && len(m.lines.byKey) == 0
}

// entered is the record of a connection's hold, of which it has the busy mark.
func entered(ctx context.Context, c *Client, id lockstore.ID) (*record, error) {
	made := &record{id: id.Hold(), client: c}
	return c.m.holds.enter(ctx, forEver, func() (*record, error) { return cmp.Or(c.m.holds.of(id), made), nil }, nil)
}

// parkedAt says that somebody waits in the line of a request, and may be handed the lock.
func parkedAt(m *Manager, r Request) bool {
	m.lines.mu.Lock()
	defer m.lines.mu.Unlock()
	key := lockstore.ID{DB: r.DB, Key: r.Key, Kind: r.Kind}.Line()
	key.Fair = r.Fair
	l := m.lines.byKey[key]
	return l != nil && l.waiters.Front().Value.(*waiter).state == parked && time.Until(l.tryAt) > 0
}

// noneHeld waits until nothing is held that tests of MULTILOCK take.
func noneHeld(t *testing.T, s redisServer, m *Manager) {
	t.Helper()
	eventually(t, 30*time.Second, "everything is given back", func() bool {
		return s.Do(t, "EXISTS", "a", "b", "c", "x", "y", "z").(int64) == 0 && m.Stats().Held == 0
	})
}

// multi is a MULTILOCK of which only the error matters.
func multi(c *Client, r Request, keys ...string) error {
	_, err := c.MultiLock(context.Background(), keys, r)
	return err
}

// oneOrQuorum is an engine on one node, or on three; there says whether a lock is held by somebody.
func oneOrQuorum(t *testing.T, w *world.World, votes bool) (m *Manager, there func(key string) bool) {
	t.Helper()
	if votes {
		ns := bubbleNodes(w, 3)
		return ns.engine(t, "one", 0, ManagerOptions{}), func(key string) bool { return ns.holding(t, key) > 0 }
	}
	s := w.NewNode(bubbleAddr)
	return bubbleEngine(t, w, s, "one", ManagerOptions{}), func(key string) bool { return pttl(t, s, key) > 0 }
}
