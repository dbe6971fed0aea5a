package sharded

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

// hostOf is an engine of which only what runs aside is there.
func hostOf(t *testing.T, ctx context.Context, running *sync.WaitGroup) lockstore.Host {
	t.Helper()
	return lockstore.Host{
		UUID: uuid.NewString(), Log: slog.New(slog.DiscardHandler),
		Background: func(work func()) { running.Go(work) },
		Sleep:      func(other context.Context, d time.Duration) bool { return retry.Sleep(other, d, ctx.Done()) },
		Recheck:    func(func(string, string) string) {}, Wake: func(func(string) bool) {}, Shorten: func(time.Duration, time.Time, func(string) bool) {},
	}
}

// opened is a store at work until the test ends.
func opened(t *testing.T, open lockstore.Opener, closeAll func()) *store {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	running := &sync.WaitGroup{}
	kept, _ := open(hostOf(t, ctx, running))
	s := kept.(*store)
	requests, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, requests)
	}()
	t.Cleanup(func() {
		cancel()
		running.Wait()
		end()
		<-ended
		closeAll()
	})
	return s
}

// at is a store on one Redis.
func at(t *testing.T, url string) *store {
	t.Helper()
	where, err := upstream.ParseURL(url)
	target := where.Target()
	if err != nil {
		t.Fatal(err)
	}
	ctl := upstream.NewControl(target, upstream.ControlOptions{DialTimeout: 10 * time.Second})
	return opened(t, Single(ctl), ctl.Close)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("not in time: ", what)
}

// TestProbeDoesAllAndLeavesNothing: on a single Redis and on a cluster all steps of the probe do what they are for, and no key is left.
func TestProbeDoesAllAndLeavesNothing(t *testing.T) {
	s, tc := testredis.Start(t), testredis.StartCluster(t, 2, 0)
	where, err := upstream.ParseURL("redis-cluster://" + tc.Servers[0].Addr())
	target, _ := where.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	c := testredis.Opened(t, func() (*cluster.Cluster, error) {
		return cluster.Open(t.Context(), target, cluster.Options{Node: upstream.NodeOptions{Logger: slog.New(slog.DiscardHandler)}})
	})
	for name, way := range map[string]struct {
		store   *store
		servers []*testredis.Server
	}{
		"one Redis": {at(t, s.URL()), []*testredis.Server{s}},
		"a cluster": {opened(t, Cluster(c, ""), c.Close), tc.Servers},
	} {
		eventually(t, name+" is asked", func() bool {
			asked := 0
			for _, n := range nodesOf(way.store) {
				if err := n.Able(); err == nil {
					asked++
				} else if !errors.Is(err, lockstore.ErrUntried) {
					t.Fatal(name, err)
				}
			}
			return asked == len(way.servers)
		})
		for _, server := range way.servers {
			if left := server.Do(t, "DBSIZE").(int64); left != 0 {
				t.Errorf("%s: %d keys are left: %q", name, left, server.Do(t, "KEYS", "*"))
			}
		}
	}
}

func nodesOf(d *store) (all []*node.Node) {
	switch s := d.shards.(type) {
	case *single:
		all = append(all, &s.only.Node)
	case *masters:
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, sh := range s.shards {
			all = append(all, &sh.Node)
		}
	}
	return all
}

// TestTooLateSaysWhatIsKnown: a script that Redis came to too late names the time it took, or the clock that jumped.
func TestTooLateSaysWhatIsKnown(t *testing.T) {
	for took, want := range map[time.Duration]string{
		1500 * time.Millisecond: "the request came to Redis too late, and nothing was done: the answer took 1.5s, 1s are allowed",
		5 * time.Millisecond:    "the request came to Redis too late, and nothing was done: its clock is ahead of where it was",
	} {
		if err := tooLate(took, time.Second); !errors.Is(err, lockstore.ErrLate) || !lockstore.NotSent(err) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v: %v", took, err)
		}
	}
}

// TestForceComesAgain: a FORCE that Redis came to too late, since its clock is ahead of what is known of it, is sent once more.
func TestForceComesAgain(t *testing.T) {
	s := testredis.Start(t)
	where, err := upstream.ParseURL(s.URL())
	target := where.Target()
	if err != nil {
		t.Fatal(err)
	}
	ctl := upstream.NewControl(target, upstream.ControlOptions{DialTimeout: 10 * time.Second})
	t.Cleanup(ctl.Close)
	host := hostOf(t, t.Context(), &sync.WaitGroup{})
	one := newSingle(host, ctl)
	d := newStore(one, host) // nobody else reads the clock
	s.Do(t, "HSET", "k", "o", "1")
	if err := one.sample(); err != nil {
		t.Fatal(err)
	}
	now, _ := one.only.Clock.Now()
	one.only.Clock.Set(now-5e6, time.Now(), one.only.Clock.Era())
	if done, err := d.Release(t.Context(), &lockstore.Release{ID: lockstore.ID{Key: "k"}}); done.Code != 1 || err != nil || s.Do(t, "EXISTS", "k").(int64) != 0 {
		t.Error(done, err)
	}
}

// TestClocksAreComparedUntilTheNodeTells: a new master that does not tell its time at first is asked again, and the locks that came to it end
// earlier by how far it is ahead, but not those that it has answered for itself.
func TestClocksAreComparedUntilTheNodeTells(t *testing.T) {
	tc := testredis.StartCluster(t, 2, 0)
	where, err := upstream.ParseURL("redis-cluster://" + tc.Servers[0].Addr())
	target, _ := where.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	c := testredis.Opened(t, func() (*cluster.Cluster, error) {
		return cluster.Open(t.Context(), target, cluster.Options{Node: upstream.NodeOptions{Logger: slog.New(slog.DiscardHandler)}})
	})
	shortened := make(chan time.Duration, 1)
	noticed := time.Now()
	s := opened(t, func(h lockstore.Host) (lockstore.Store, lockstore.Rules) {
		h.Shorten = func(by time.Duration, then time.Time, _ func(string) bool) {
			if !then.Equal(noticed) {
				t.Errorf("deadlines of what was sent %v later change", then.Sub(noticed))
			}
			shortened <- by
		}
		return Cluster(c, "")(h)
	}, c.Close)
	m := s.shards.(*masters)
	m.mu.Lock()
	now := m.shardOf(c.Snapshot().Masters[0])
	m.mu.Unlock()
	old := &shard{}
	old.Clock.Set(time.Now().Add(-10*time.Second).UnixMicro(), time.Now(), old.Clock.Era())
	for _, server := range tc.Servers {
		server.Do(t, "ACL", "SETUSER", "default", "-time")
	}
	done := make(chan struct{})
	go func() {
		m.compareClocks(movedSlots{before: c.Snapshot(), now: c.Snapshot(), at: noticed}, succession{old: old, now: now})
		close(done)
	}()
	select {
	case by := <-shortened:
		t.Fatalf("by %v, and the node does not tell its time", by)
	case <-time.After(100 * time.Millisecond):
	}
	for _, server := range tc.Servers {
		server.Do(t, "ACL", "SETUSER", "default", "+time")
	}
	if by := <-shortened; (by - 10*time.Second).Abs() > 5*time.Second {
		t.Errorf("by %v", by)
	}
	<-done
}
