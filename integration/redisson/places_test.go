package redisson

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

var fiveFor = flag.Duration("five-hold", 8*time.Second, "how long two JVMs and four lockproxies want one lock that five may hold")

// fiveHold: of the threads of two JVMs and the clients of three lockproxies five hold a lock at most, while clients hang up and others come,
// and a JVM and a lockproxy are killed and come back again and again. When that is over five places can be had, no sixth, and nothing is left.
func fiveHold(t *testing.T, e *env, _, kind string) {
	e.second.Lock()
	defer e.second.Unlock()
	const lease = 3 * time.Second // of Redisson's permits; it is far longer than they are held
	l, over := e.lock(kind), time.Now().Add(*fiveFor)
	var inside, most, grants, java atomic.Int64
	// work has an owner take the lock and give it back until something fails, as when its process is killed, or it has done so often enough.
	work := func(s side, rounds int) error {
		for range rounds {
			won, err := s.try(l, 200*time.Millisecond, lease)
			if err != nil || time.Now().After(over) {
				return err
			}
			if !won {
				continue
			}
			if n := inside.Add(1); n > 5 {
				t.Errorf("%d hold it", n)
			} else if n > most.Load() {
				most.Store(n)
			}
			time.Sleep(rand.N(20 * time.Millisecond))
			inside.Add(-1)
			if err := s.unlock(l); err != nil {
				return err
			}
			if grants.Add(1); s != nil {
				if _, is := s.(*thread); is {
					java.Add(1)
				}
			}
		}
		return nil
	}
	stays := func(s side) later {
		return start(func() error {
			for time.Now().Before(over) {
				if err := work(s, 100); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var all []later
	for i := range 3 {
		all = append(all, stays(&thread{e.java, beside, fmt.Sprint("five-", l.name, i)}), stays(e.party(t, ours)))
	}
	comes := func(one func(round int)) later { // and goes, again and again
		return start(func() error {
			for round := 0; time.Now().Before(over); round++ {
				one(round)
			}
			return nil
		})
	}
	all = append(all, comes(func(int) { // a client that hangs up, sometimes with the lock
		s := e.party(t, ours).(*conn)
		_ = work(s, 1+rand.N(5))
		_, _ = s.try(l, 50*time.Millisecond, 0)
		_ = s.c.Close()
	}))
	dying := func(kill func(), owners []side) {
		time.AfterFunc(time.Second+rand.N(2*time.Second), kill)
		var ended []later
		for _, s := range owners {
			ended = append(ended, start(func() error {
				for work(s, 100) == nil && time.Now().Before(over) {
				}
				return nil
			}))
		}
		for _, one := range ended {
			<-one.done
		}
		kill()
	}
	all = append(all, comes(func(round int) {
		p := e.proxy(t)
		dying(p.Kill, []side{dial(t, p.Addr()), dial(t, p.Addr())})
	}), comes(func(round int) {
		j := e.jvm(t)
		dying(j.kill, []side{&thread{j, beside, "a"}, &thread{j, beside, "b"}})
	}))
	for i, one := range all {
		select {
		case r := <-one.done:
			if r.err != nil {
				t.Errorf("owner %d: %v", i, r.err)
			}
		case <-time.After(*fiveFor + time.Minute):
			t.Fatal("no end")
		}
	}
	if most.Load() < 5 || java.Load() == 0 || java.Load() == grants.Load() {
		t.Errorf("%d at most held it, %d grants, %d of them Redisson's", most.Load(), grants.Load(), java.Load())
	}
	t.Logf("Redisson %s: %d grants, %d of them Redisson's", e.version, grants.Load(), java.Load())
	time.Sleep(lease)
	var last []side
	for range 5 {
		s := e.party(t, ours)
		won, err := s.try(l, watchdog+lease, long)
		if err != nil || !won {
			t.Fatalf("only %d places are there: %v", len(last), err)
		}
		last = append(last, s)
	}
	tries(t, e.party(t, ours), l, false)
	tries(t, e.party(t, beside), l, false)
	for _, s := range last {
		free(t, s, l)
	}
	if n := e.server(t, l.name).Do(t, "EXISTS", "{"+l.name+"}:timeout"); n.(int64) != 0 {
		t.Error("places are left")
	}
	if left, is := e.server(t, l.name).Do(t, "GET", l.name).([]byte); is && string(left) != "5" { // of Redisson's own
		t.Errorf("%s places are free", left)
	}
}
