package lock

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A client's script that takes long makes Redis refuse what waiters ask meanwhile. They go on waiting, as Redis' own BLPOP does.
func TestWaitersSitOutALongScript(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--busy-reply-threshold 20")
	m := engine(t, s.URL(), ManagerOptions{Poll: 50 * time.Millisecond})
	requests := map[lockstore.LineKey]Request{
		{Key: "plain"}:            {Key: "plain", Blocks: true},
		{Key: "fair", Fair: true}: {Key: "fair", Blocks: true, Fair: true},
		{Key: "rw", Kind: Write}:  {Key: "rw", Kind: Read, Blocks: true},
	}
	writer, _ := client(m)
	mustLock(t, writer, Request{Key: "rw", Kind: Write})
	var all []<-chan error
	for key, r := range requests {
		if r.Kind == Plain {
			heldByRedisson(t, s, r.Key)
		}
		c, _ := client(m)
		all = append(all, locking(c, r))
		eventually(t, 30*time.Second, "it waits", func() bool { return m.lines.waitingAt(0, key.Key) == 1 })
	}
	ended := make(chan error, 1)
	c := s.Dial(t)
	go func() {
		_, err := c.Do("EVAL", "while true do end", 0)
		ended <- err
	}()
	for key := range requests {
		eventually(t, 30*time.Second, key.Key+" is refused", func() bool {
			m.lines.mu.Lock()
			defer m.lines.mu.Unlock()
			return m.lines.byKey[key] == nil || m.lines.byKey[key].troubled
		})
	}
	eventually(t, 30*time.Second, "the script is killed", func() bool { return s.Do(t, "SCRIPT", "KILL") == "OK" })
	if err := <-ended; err == nil {
		t.Error("the script ended by itself")
	}
	for key := range requests {
		s.Do(t, "DEL", key.Key)
	}
	for _, got := range all {
		granted(t, got, "a waiter")
	}
}
