package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// waitingAt waits until so many stand in the line of a read/write lock, and its head waits for a message.
func waitingAt(t *testing.T, m *Manager, key string, n int) {
	t.Helper()
	eventually(t, 10*time.Second, fmt.Sprint(n, " wait"), func() bool {
		return m.lines.waitingAt(0, key) == n && parkedAt(m, Request{Key: key, Kind: Write})
	})
}

// behindAWriter has two readers wait behind a writer that gives up while somebody reads: they are let in when it has gone, without a
// message, and long before any of them would try by itself.
func behindAWriter(t *testing.T, m *Manager, key string, gives func(c *Client, ctx context.Context, cancel func())) {
	t.Helper()
	reader, _ := client(m)
	mustLock(t, reader, Request{Key: key, Kind: Read})
	writer, _ := client(m)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	gone := make(chan struct{})
	go func() {
		gives(writer, ctx, cancel)
		close(gone)
	}()
	waitingAt(t, m, key, 1)
	var behind []<-chan error
	for i := range 2 {
		c, _ := client(m)
		behind = append(behind, locking(c, Request{Key: key, Kind: Read, Blocks: true}))
		waitingAt(t, m, key, 2+i)
	}
	<-gone
	began := time.Now()
	for _, got := range behind {
		granted(t, got, key+": a reader behind the writer")
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("%s: the readers were let in after %v", key, took)
	}
}

// waysToGiveUp are those of a writer that waits.
func waysToGiveUp(t *testing.T, key string) map[string]func(c *Client, ctx context.Context, cancel func()) {
	waits := func(c *Client, ctx context.Context, block int64, want error) {
		if _, err := c.Lock(ctx, Request{Key: key, Kind: Write, Blocks: true, Block: block}); !errors.Is(err, want) {
			t.Error(key, err)
		}
	}
	return map[string]func(*Client, context.Context, func()){
		"its time is over": func(c *Client, ctx context.Context, _ func()) { waits(c, ctx, 5000, ErrNotAcquired) },
		"it goes": func(c *Client, ctx context.Context, cancel func()) {
			time.AfterFunc(5*time.Second, cancel)
			waits(c, ctx, 0, context.Canceled)
		},
	}
}

// Readers that wait behind a writer that gives up come in at once, if only readers have the lock.
func TestReadersBehindAWriterThatGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Hour})
		for how, gives := range waysToGiveUp(t, "k") {
			t.Log(how)
			behindAWriter(t, m, "k", gives)
			s.Do(t, "FLUSHALL")
			eventually(t, time.Minute, "nobody holds it", func() bool { return idle(m) })
		}
	})
}

// So it is on a quorum.
func TestReadersBehindAWriterThatGivesUpOnAQuorum(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m := bubbleNodes(w, 3).engine(t, "one", 0, ManagerOptions{Poll: time.Hour})
		behindAWriter(t, m, "k", waysToGiveUp(t, "k")["its time is over"])
	})
}

// And on a cluster.
func TestReadersBehindAWriterThatGivesUpOnACluster(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		w.NewCluster("10.0.0.1:6379", "10.0.0.2:6379")
		seeds := upstream.ClusterTarget{Seeds: []string{"10.0.0.1:6379"}, Node: upstream.Target{Network: "tcp", Dialer: w.Proxy("one")}}
		c, err := cluster.Open(context.Background(), seeds, cluster.Options{Node: upstream.NodeOptions{Logger: testLog()}})
		if err != nil {
			t.Fatal(err)
		}
		m := atWork(t, New(sharded.Cluster(c, ""), ManagerOptions{Logger: testLog(), Poll: time.Hour}), c.Close)
		behindAWriter(t, m, "k", waysToGiveUp(t, "k")["its time is over"])
	})
}

// A writer in the middle that gives up lets nobody in, nor asks Redis anything: the one before it still waits. The last one to go does. One
// that waits at another proxy holds nobody up.
func TestReadersBehindWritersThatGiveUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Hour}), bubbleEngine(t, w, s, "two", ManagerOptions{Poll: time.Hour})
		reader, _ := client(m)
		mustLock(t, reader, Request{Key: "k", Kind: Read})
		elsewhere, _ := client(n)
		other := locking(elsewhere, Request{Key: "k", Kind: Write, Blocks: true, Block: 20000})
		waitingAt(t, n, "k", 1)
		var writers []<-chan error
		for i, block := range []int64{4000, 2000, 3000} {
			c, _ := client(m)
			writers = append(writers, locking(c, Request{Key: "k", Kind: Write, Blocks: true, Block: block}))
			waitingAt(t, m, "k", i+1)
		}
		c, _ := client(m)
		behind := locking(c, Request{Key: "k", Kind: Read, Blocks: true})
		waitingAt(t, m, "k", 4)
		ran := scriptsOf(s)
		for _, i := range []int{1, 2} {
			if err := <-writers[i]; !errors.Is(err, ErrNotAcquired) {
				t.Error(err)
			}
			waitingAt(t, m, "k", 4-i)
		}
		if ran.Load() != 0 {
			t.Errorf("%d scripts", ran.Load())
		}
		began := time.Now()
		if err := <-writers[0]; !errors.Is(err, ErrNotAcquired) {
			t.Error(err)
		}
		gone := time.Now()
		granted(t, behind, "the reader")
		if took := time.Since(gone); took > time.Second || gone.Sub(began) < time.Second/2 {
			t.Errorf("let in after %v, the first writer left after %v", took, gone.Sub(began))
		}
		if got := ran.Load(); got != 1 {
			t.Errorf("%d scripts, not 1", got)
		}
		if err := <-other; !errors.Is(err, ErrNotAcquired) {
			t.Error(err)
		}
	})
}

// A writer that is granted the lock has the reader behind it try nothing.
func TestReaderBehindAWriterThatIsGranted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Hour})
		ran := scriptsOf(s)
		for round := range 2 { // in the first Redis learns the script
			reader, _ := client(m)
			mustLock(t, reader, Request{Key: "k", Kind: Read})
			writer, _ := client(m)
			write := locking(writer, Request{Key: "k", Kind: Write, Blocks: true})
			waitingAt(t, m, "k", 1)
			next, _ := client(m)
			read := locking(next, Request{Key: "k", Kind: Read, Blocks: true})
			waitingAt(t, m, "k", 2)
			before := ran.Load()
			mustUnlock(t, reader, UnlockRequest{Key: "k"}, true)
			granted(t, write, "the writer")
			time.Sleep(5 * time.Second)
			if got := ran.Load() - before; got != 1 && round > 0 {
				t.Errorf("%d scripts, not 1", got)
			}
			mustUnlock(t, writer, UnlockRequest{Key: "k"}, true)
			granted(t, read, "the reader")
			mustUnlock(t, next, UnlockRequest{Key: "k"}, true)
		}
	})
}
