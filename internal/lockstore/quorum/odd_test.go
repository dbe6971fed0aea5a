package quorum

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// liar stands before a Redis and, once it has something to say, says that instead of what a script returned; to say nothing is to hang up.
type liar struct {
	says    atomic.Pointer[string]
	running sync.WaitGroup
}

// before returns where the liar listens.
func (l *liar) before(t *testing.T, s *testredis.Server) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.running.Wait)
	t.Cleanup(func() { ln.Close() })
	l.running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			l.running.Go(func() { l.talk(c, s.Addr()) })
		}
	})
	return ln.Addr().String()
}

// talk passes requests on, each when the one before has its answer.
func (l *liar) talk(c net.Conn, addr string) {
	defer c.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		said := l.says.Load()
		lies := said != nil && bytes.Contains(buf[:n], []byte("EVAL"))
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
		if n, err = server.Read(buf); err != nil {
			return
		}
		answer := buf[:n]
		if lies && *said == "" {
			return
		}
		if lies {
			answer = []byte(*said)
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// among is the store of so many nodes of which the last is asked through the liar. running has what goes on behind its answers.
func (l *liar) among(t *testing.T, nodes int, running *sync.WaitGroup) *store {
	servers := testredis.StartSet(t, nodes)
	q := openStore(t, servers, func(work func()) { running.Go(work) })
	addr := l.before(t, servers[nodes-1])
	control := upstream.NewControl(upstream.Target{Network: "tcp", Addr: addr}, upstream.ControlOptions{DialTimeout: 10 * time.Second})
	t.Cleanup(control.Close)
	q.all[nodes-1].Control = control
	return q
}

// A node whose scripts return fewer numbers than they do counts as one that has not answered, and the others decide.
func TestNodeThatReturnsTooFewNumbers(t *testing.T) {
	t.Parallel()
	var l liar
	var running sync.WaitGroup
	q := l.among(t, 3, &running)
	mine, named := lockstore.ID{Key: "k", Owner: "me"}, lockstore.ID{Key: "named", Owner: "job"}
	counts := lockstore.Counts{Writes: 1}
	acquire := func() {
		t.Helper()
		for _, a := range []*lockstore.Acquire{{ID: mine, Counts: counts, Lease: 30_000}, {ID: named, Lease: 30_000}} {
			if got, err := q.Acquire(t.Context(), a); err != nil || got.Code != lockstore.Granted {
				t.Fatal(got, err)
			}
			running.Wait()
		}
	}
	acquire() // all are honest, so the account of each is known to have its rights
	for _, says := range []string{":0\r\n", ":-1\r\n", "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n", "*0\r\n"} {
		l.says.Store(&says)
		acquire()
		for _, e := range []lockstore.Extension{{ID: mine, Counts: counts, Lease: 30_000}, {ID: named, Lease: 30_000}} {
			if done, err := q.Extend(t.Context(), e); err != nil || done.Code != lockstore.LeaseSet {
				t.Errorf("%q: extended: %v, %v", says, done, err)
			}
			running.Wait()
		}
		hold, other := lockstore.Renewed{ID: mine, Counts: counts, Lease: 60_000}, lockstore.ID{Key: "other", Owner: "me"}
		if out, err := q.Renew(t.Context(), lockstore.Renewal{Holds: []lockstore.Renewed{hold, {ID: other, Counts: counts, Lease: 60_000}}}); err != nil || out[0] != lockstore.StillThere {
			t.Errorf("%q: renewed: %v, %v", says, out, err)
		}
		running.Wait()
		for _, r := range []*lockstore.Release{{ID: mine, Whole: true}, {ID: named, Named: true}} {
			if done, err := q.Release(t.Context(), r); err != nil || done.Code != lockstore.Freed {
				t.Errorf("%q: released: %v, %v", says, done, err)
			}
		}
		l.says.Store(nil) // so that what goes on behind the answers ends
		_, _ = q.Info(t.Context(), 0, "k", 10)
		running.Wait()
	}
}

// A step whose reply is lost is followed by another one on that node only when it can no longer be done.
func TestNextStepWaitsForOneWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	var l liar
	var running sync.WaitGroup
	q := l.among(t, 1, &running)
	id := lockstore.ID{Key: "k", Owner: "me"}
	if got, err := q.Acquire(t.Context(), &lockstore.Acquire{ID: id, Counts: lockstore.Counts{Writes: 1}, Lease: 30_000}); err != nil || got.Code != lockstore.Granted {
		t.Fatal(got, err)
	}
	running.Wait()
	var mu sync.Mutex
	var slept []time.Duration
	q.host.Sleep = func(_ context.Context, d time.Duration) bool {
		mu.Lock()
		defer mu.Unlock()
		slept = append(slept, d)
		return false
	}
	l.says.Store(new(string))
	h := q.holds.want(id, lockstore.Counts{}, true)[0]
	sent := time.Now()
	if said := h.giveVoteBack(&lockstore.Release{ID: id, Whole: true}, q.until(0)); !lockstore.Unknown(said.err) {
		t.Fatal(said)
	}
	running.Wait()
	mu.Lock()
	defer mu.Unlock()
	longest := time.Duration(0)
	for _, d := range slept {
		longest = max(longest, d)
	}
	if left := q.timeout - time.Since(sent); longest < left {
		t.Errorf("the next step may be sent after %v, and the one before can be done for %v more", slept, left)
	}
}
