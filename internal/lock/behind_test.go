package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A reader that does not wait does not pass a writer that waits on this proxy; who is inside already goes on.
func TestReadersStandBackForAWriter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
		reader, _ := client(m)
		mustLock(t, reader, Request{Key: "k", Kind: Read})
		elsewhere, _ := client(n)
		mustLock(t, elsewhere, Request{Key: "k", Kind: Read, Owner: "both", Lease: 600_000})
		writer, _ := client(m)
		got := locking(writer, Request{Key: "k", Kind: Write, Blocks: true})
		eventually(t, 10*time.Second, "it waits", func() bool { return parkedAt(m, Request{Key: "k", Kind: Write}) })

		newcomer, _ := client(m)
		for range 3 {
			refused(t, newcomer, Request{Key: "k", Kind: Read})
		}
		refused(t, newcomer, Request{Key: "k", Kind: Read, Owner: "new", Lease: 600_000})
		refused(t, newcomer, Request{Key: "k", Kind: Write})
		mustLock(t, reader, Request{Key: "k", Kind: Read})                                  // it enters again
		mustLock(t, newcomer, Request{Key: "k", Kind: Read, Owner: "both", Lease: 600_000}) // that owner reads through another proxy
		_, err := reader.Lock(context.Background(), Request{Key: "k", Kind: Write})
		wantCode(t, err, "DEADLOCK")
		mustUnlock(t, newcomer, UnlockRequest{Key: "k", Owner: "both", All: true}, true)
		mustUnlock(t, reader, UnlockRequest{Key: "k", All: true}, true)
		granted(t, got, "the writer, with newcomers all the time")

		mustLock(t, writer, Request{Key: "k", Kind: Read}) // a writer reads beside itself, whoever waits
		mustUnlock(t, writer, UnlockRequest{Key: "k", Side: Write}, true)
		mustUnlock(t, writer, UnlockRequest{Key: "k", Side: Read}, true)
		mustLock(t, newcomer, Request{Key: "k", Kind: Read}) // nobody waits any more
	})
}

// Nor does one that wants a plain lock pass those that wait for it here. While they cannot ask Redis, it asks by itself.
func TestNewcomersStandBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Second})
		p := w.Proxy("one").Link(s.Addr())
		s.Do(t, "HSET", "k", "redisson:1", "1")
		s.Do(t, "PEXPIRE", "k", 60000)
		waits, _ := client(m)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			_, err := waits.Lock(ctx, Request{Key: "k", Blocks: true})
			ended <- err
		}()
		eventually(t, 10*time.Second, "it waits", func() bool { return settledDown(m, "k") })
		s.Do(t, "DEL", "k") // without a message: whoever asks now would have it
		newcomer, _ := client(m)
		refused(t, newcomer, Request{Key: "k"})
		p.Cut()
		eventually(t, 20*time.Second, "the newcomer is told that Redis is away", func() bool {
			_, err := newcomer.Lock(context.Background(), Request{Key: "k"})
			return err != nil && !errors.Is(err, ErrNotAcquired)
		})
		p.Heal()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("it waits for a free lock")
		}
		cancel()
	})
}

// They do so again as soon as those that wait can ask Redis again, also when the first of them has the lock then.
func TestNewcomersStandBackAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		p := w.Proxy("one").Link(s.Addr())
		s.Do(t, "HSET", "k", "mode", "write", "redisson:1:write", "1")
		s.Do(t, "PEXPIRE", "k", 60000)
		reader, _ := client(m)
		reads := locking(reader, Request{Key: "k", Kind: Read, Blocks: true})
		waitingAt(t, m, "k", 1)
		writer, _ := client(m)
		writes := locking(writer, Request{Key: "k", Kind: Write, Blocks: true})
		waitingAt(t, m, "k", 2)
		newcomer, _ := client(m)
		refused(t, newcomer, Request{Key: "k", Kind: Read})
		p.Cut()
		s.Do(t, "DEL", "k")
		eventually(t, 20*time.Second, "the reader cannot ask", func() bool { return !m.lines.inFront(Request{}, lockstore.ID{Key: "k", Kind: Read}) })
		p.Heal()
		granted(t, reads, "the reader")
		if _, err := newcomer.Lock(context.Background(), Request{Key: "k", Kind: Read}); !errors.Is(err, ErrNotAcquired) {
			t.Errorf("beside a writer that waits: %v", err)
		}
		newcomer.Close(Gone)
		mustUnlock(t, reader, UnlockRequest{Key: "k"}, true)
		granted(t, writes, "the writer")
	})
}
