package redisson

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// turns: a crowd that hands a lock on within its lockproxy leaves turns to a thread of Redisson, again and again.
func turns(t *testing.T, e *env, _, kind string) {
	const crowd, rounds = 100, 200
	l := e.lock(kind)
	p := e.proxy(t)
	var done atomic.Bool
	var grants atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, crowd)
	for range crowd {
		s := dial(t, p.Addr())
		group.Go(func() {
			for !done.Load() {
				if err := s.stay(l, time.Millisecond); err != nil {
					failed <- err
					return
				}
				grants.Add(1)
			}
		})
	}
	defer group.Wait()
	defer done.Store(true)
	eventually(t, "the crowd goes round", func() bool { return grants.Load() > 2*crowd })
	other := e.party(t, beside)
	var took []time.Duration
	began, from := time.Now(), grants.Load()
	for range rounds {
		asked := time.Now()
		hold(t, other, l, long)
		took = append(took, time.Since(asked))
		free(t, other, l)
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	each := time.Since(began) / time.Duration(grants.Load()-from+rounds)
	done.Store(true)
	group.Wait()
	select {
	case err := <-failed:
		t.Fatalf("one of the crowd: %v", err)
	default:
	}
	s := summary(took)
	e.measured(t, kind+": a thread of Redisson among a hundred clients of one lockproxy, 1 ms each: median, p99, most",
		fmt.Sprintf("%s, %s, %s (%d); a grant each %s", milliseconds(s.median), milliseconds(s.p99), milliseconds(s.most), s.n, milliseconds(each)))
	// Were it one of a hundred and one, and each turn of the crowd a third of a second, this would be 30 s.
	if s.p99 > time.Duration(crowding()*float64(time.Second)) {
		t.Errorf("it waited for %v", s.p99)
	}
}

// stay holds a lock for a while.
func (s *conn) stay(l lock, section time.Duration) error {
	if _, err := s.lock(l, long); err != nil {
		return err
	}
	time.Sleep(section)
	return s.unlock(l)
}
