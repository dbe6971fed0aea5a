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
	id := lockstore.ID{Key: "k", Owner: "me"}
	acquire := func() {
		t.Helper()
		if got, err := q.Acquire(t.Context(), &lockstore.Acquire{ID: id, Lease: 30_000}); err != nil || got.Code != lockstore.Granted {
			t.Fatal(got, err)
		}
		running.Wait()
	}
	acquire() // all are honest, so the account of each is known to have its rights
	for _, says := range []string{":0\r\n", ":-1\r\n", "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n", "*0\r\n"} {
		l.says.Store(&says)
		acquire()
		if done, err := q.Extend(t.Context(), lockstore.Extension{ID: id, Lease: 30_000, Count: 1, MayEnd: func(time.Time) {}}); err != nil || done.Code != lockstore.LeaseSet {
			t.Errorf("%q: extended: %v, %v", says, done, err)
		}
		running.Wait()
		hold := lockstore.Renewed{ID: id}
		if out, err := q.Renew(t.Context(), lockstore.Renewal{Lease: time.Minute, Holds: []lockstore.Renewed{hold, hold}}); err != nil || len(out) != 2 {
			t.Errorf("%q: renewed: %v, %v", says, out, err)
		}
		running.Wait()
		if done, err := q.Release(t.Context(), &lockstore.Release{ID: id, All: true, Count: 1, GiveUp: time.Now().Add(100 * time.Millisecond)}); err != nil || done.Code != lockstore.Freed {
			t.Errorf("%q: released: %v, %v", says, done, err)
		}
		_, _ = q.Info(t.Context(), 0, "k")
		running.Wait()
	}
}

// TestLateReleaseIsSatOut: a release that begins late on a node, and whose reply is lost, is not sent again before the first request can no
// longer be done.
func TestLateReleaseIsSatOut(t *testing.T) {
	t.Parallel()
	var l liar
	var running sync.WaitGroup
	q := l.among(t, 1, &running)
	id := lockstore.ID{Key: "k", Owner: "me"}
	if got, err := q.Acquire(t.Context(), &lockstore.Acquire{ID: id, Lease: 30_000}); err != nil || got.Code != lockstore.Granted {
		t.Fatal(got, err)
	}
	running.Wait()
	var slept []time.Duration
	q.host.Sleep = func(_ context.Context, d time.Duration) bool {
		slept = append(slept, d)
		return false
	}
	l.says.Store(new(string))
	d := q.newDropping(&lockstore.Release{ID: id, All: true, Count: 1, GiveUp: time.Now().Add(time.Minute)}, q.all, false)
	d.until = time.Now().Add(-time.Minute)
	answer, sent := make(chan result, 1), time.Now()
	d.step(q.all[0], d.places[q.all[0]].mine, true, answer)
	if said := <-answer; !lockstore.Unknown(said.err) {
		t.Fatal(said)
	}
	if left := q.timeout - time.Since(sent); len(slept) == 0 || slept[0] < left {
		t.Errorf("it was sent again after %v, and could be done for %v more", slept, left)
	}
}
