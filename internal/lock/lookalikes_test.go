package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestReadHoldsOfLookalikesAreApart: who reads one lock keeps on reading when a hold ends whose names would make the same key.
func TestReadHoldsOfLookalikesAreApart(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	for _, c := range []struct{ lock, owner, like, likeOwner string }{
		{"{a}:b", "", "a", "b:"},                                  // the connection of the one, with a colon more for the other
		{"{c}:b", "job", "c", "b:job"},                            // two named owners
		{"{d}", "job", "d", "job"},                                // one is the other's hash tag
		{"{e}", "", "e", ""},                                      // the same for one connection
		{"f", "b:job", "{f}:b", "job"},                            // the other way round
		{"g", "", "{g}:3f2504e0-4f89-11d3-9a0c-0305e82c3301", ""}, // nothing alike: a control
	} {
		reader, _ := client(m)
		long, _ := client(m)
		writer, _ := client(m)
		likeOwner := c.likeOwner
		if strings.HasSuffix(likeOwner, ":") {
			likeOwner += reader.Owner()
		}
		mustLock(t, reader, Request{Key: c.lock, Kind: Read, Owner: c.owner, Lease: 60_000})
		mustLock(t, long, Request{Key: c.lock, Kind: Read})
		mustLock(t, reader, Request{Key: c.like, Kind: Read, Owner: likeOwner, Lease: 60_000})
		mustUnlock(t, reader, UnlockRequest{Key: c.like, Side: Read, Owner: likeOwner}, true)
		mustUnlock(t, long, UnlockRequest{Key: c.lock}, true)
		if _, err := writer.Lock(t.Context(), Request{Key: c.lock, Kind: Write}); err != ErrNotAcquired {
			t.Errorf("%s beside %s: a writer got %v while somebody reads", c.lock, c.like, err)
		}
		in, err := m.Info(t.Context(), 0, c.lock)
		want := c.owner
		if want == "" {
			want = reader.Owner()
		}
		if err != nil || len(in.Holders) != 1 || in.Holders[0].Owner != want || !in.Holders[0].Local {
			t.Errorf("%s: %+v %v", c.lock, in.Holders, err)
		}
		mustUnlock(t, reader, UnlockRequest{Key: c.lock, Owner: c.owner}, true)
	}
}

// TestWriterLooksLikeNoReader: the keys of a reader `write` of lock `{a}:job` do not keep lock `a` when its writer `job` gives it back.
func TestWriterLooksLikeNoReader(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	mustLock(t, a, Request{Key: "{a}:job", Kind: Read, Owner: "write", Lease: 600000})
	mustLock(t, a, Request{Key: "a", Kind: Write, Owner: "job", Lease: 30_000})
	mustUnlock(t, a, UnlockRequest{Key: "a", Owner: "job"}, true)
	if got := hash(t, s, "a"); len(got) > 0 {
		t.Fatalf("left: %v", got)
	}
}

// TestKeysOfOtherLocksAreNoLocks: a lock at such a name would be overwritten by whoever takes the other.
func TestKeysOfOtherLocksAreNoLocks(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	for _, name := range []string{"{a}:job:rwlock_timeout:1", "lockproxy_watch:{a}:job", "lockproxy_fair:{a}"} {
		for _, k := range []Kind{Plain, Read, Write, Limit} {
			_, err := a.Lock(t.Context(), Request{Key: name, Kind: k})
			wantCode(t, err, "ERR")
		}
	}
	mustLock(t, a, Request{Key: "rwlock_timeout:1"})
	mustUnlock(t, a, UnlockRequest{Key: "rwlock_timeout:1"}, true)
	if n := s.Do(t, "DBSIZE").(int64); n != 0 {
		t.Fatal(n)
	}
}

// TestNoQueueOfAnotherLock: lock `{a}` would have the fair queue of lock `a`. So it has none, and who waits for the one keeps nobody from the
// other, whose users may be others.
func TestNoQueueOfAnotherLock(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	b, _ := client(m)
	mustLock(t, a, Request{Key: "{a}"})
	_, err := b.Lock(t.Context(), Request{Key: "{a}", Fair: true, Blocks: true, Block: 100})
	wantCode(t, err, "ERR")
	if n := s.Do(t, "DBSIZE").(int64); n != 1 {
		t.Error(n, "keys")
	}
	mustUnlock(t, a, UnlockRequest{Key: "{a}"}, true)

	mustLock(t, a, Request{Key: "a"})
	got := make(chan error, 1)
	go func() {
		_, err := b.Lock(t.Context(), Request{Key: "a", Fair: true, Blocks: true})
		got <- err
	}()
	eventually(t, 10*time.Second, "it waits", func() bool { return s.Do(t, "LLEN", "redisson_lock_queue:{a}").(int64) == 1 })
	for _, r := range []Request{{Key: "{a}"}, {Key: "{a}", Fence: true}, {Key: "{a}", Owner: "job", Lease: 60_000}} {
		if _, err := a.Lock(t.Context(), r); err != nil {
			t.Errorf("%+v: %v", r, err)
			continue
		}
		mustUnlock(t, a, UnlockRequest{Key: "{a}", Owner: r.Owner}, true)
	}
	mustUnlock(t, a, UnlockRequest{Key: "a"}, true)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestTokenOfLookalikesRises: locks `a` and `{a}` share the key of the fencing token, and each of them gets a higher one than both have had.
func TestTokenOfLookalikesRises(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	last := int64(0)
	for range 3 {
		for _, name := range []string{"a", "{a}"} {
			g := mustLock(t, a, Request{Key: name, Fence: true})
			if g.Token <= last {
				t.Errorf("%s: token %d after %d", name, g.Token, last)
			}
			last = g.Token
			mustUnlock(t, a, UnlockRequest{Key: name}, true)
		}
	}
}
