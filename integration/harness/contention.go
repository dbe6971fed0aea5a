package harness

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Section is one time that a client took itself for the holder of a lock.
type Section struct {
	key               string
	shared            bool
	proxy             int
	asked             time.Time // LOCK was sent
	from              time.Time // it was granted
	to                time.Time // UNLOCK was sent, or the loss was told, or the connection broke
	freed             time.Time // UNLOCK was answered with 1; zero: it was not
	wrote             int64     // what the counter was set to; 0: nothing
	told, lost, broke bool
}

// Contention is clients of several proxies that count under locks: each adds one to a counter on another server by GET and SET,
// which loses counts as soon as two of them do it at a time.
type Contention struct {
	t       testing.TB
	keys    []string
	proxies []*Proxy
	options []string      // of LOCK
	pause   time.Duration // the most between GET and SET

	counters *testredis.Server
	left     atomic.Int64
	Added    atomic.Int64
	Work     sync.WaitGroup

	mu       sync.Mutex
	sections []Section
	Others   map[string]int // replies that are no grant and no 1
	readers  int
	torn     int // readers who saw a write between their two looks
}

func NewContention(t testing.TB, keys []string, proxies []*Proxy, options ...string) *Contention {
	return &Contention{t: t, keys: keys, proxies: proxies, options: options, pause: 2 * time.Millisecond,
		counters: testredis.Start(t), Others: map[string]int{}}
}

// UntilHalt is a total that is never reached, for clients of whom only what happens beside them matters.
const UntilHalt = 1 << 40

// Start has so many clients of each proxy add until total is reached; halt ends them before. Those that work until then hold their locks
// for longer, but in the long forms: as many contend, and the processors are left to other tests.
func (c *Contention) Start(each int, total int64) {
	if total == UntilHalt && !Long() {
		c.pause = 100 * time.Millisecond
	}
	c.left.Store(total)
	c.t.Cleanup(c.Halt)
	for range each {
		for i := range c.proxies {
			c.Work.Go(func() { c.run(i) })
		}
	}
}

func (c *Contention) Halt() {
	c.left.Store(0)
	c.Work.Wait()
}

// run is one client, which comes again when its connection breaks.
func (c *Contention) run(proxy int) {
	counters, err := redis.Dial("tcp", c.counters.Addr())
	if err != nil {
		c.t.Error(err)
		return
	}
	defer counters.Close()
	var s *Speaker
	var mine []Section
	for c.left.Load() > 0 && !errors.Is(err, errStuck) {
		if s == nil {
			if s, err = NewSpeaker(c.t, c.proxies[proxy].Addr()); err != nil {
				time.Sleep(20 * time.Millisecond)
				continue
			}
		}
		var one Section
		if one, err = c.once(s, counters); !one.from.IsZero() {
			one.proxy = proxy
			mine = append(mine, one)
		}
		if err != nil {
			c.other(strings.SplitN(err.Error(), ":", 2)[0])
			s.W.Close()
			s = nil
		}
	}
	if errors.Is(err, errStuck) {
		c.t.Error(err)
	}
	if s != nil {
		s.W.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sections = append(c.sections, mine...)
}

func (c *Contention) other(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Others[strings.TrimSpace(what)]++
}

// verb is that of a key: every third is for LOCK, LOCK and FAIRLOCK, or readers and writers.
func (c *Contention) verb(k int) (verb string, unlock []string) {
	switch n := rand.IntN(3); {
	case k%3 == 2 && n == 0:
		return "WLOCK", []string{"UNLOCK", c.keys[k], "WRITE"}
	case k%3 == 2:
		return "RLOCK", []string{"UNLOCK", c.keys[k], "READ"}
	case k%3 == 1 && n > 0:
		return "FAIRLOCK", []string{"UNLOCK", c.keys[k]}
	}
	return "LOCK", []string{"UNLOCK", c.keys[k]}
}

// once takes a lock, adds one (or, as a reader, looks twice) and gives it back. An error is the connection's.
func (c *Contention) once(s *Speaker, counters redis.Conn) (one Section, err error) {
	k := rand.IntN(len(c.keys))
	verb, unlock := c.verb(k)
	one = Section{key: c.keys[k], shared: verb == "RLOCK"}
	s.forget(one.key)
	one.asked = time.Now()
	got := s.Ask(append([]string{verb, one.key, "BLOCK", "20000"}, c.options...)...)
	if got.Err != nil {
		return one, got.Err
	}
	if got.Frame != "+OK\r\n" {
		c.other(verb + " " + got.Frame)
		if IsErrorFrame(got.Frame) {
			time.Sleep(5 * time.Millisecond)
		}
		return one, nil
	}
	one.from = got.At
	if err := c.inside(s, counters, &one); err != nil {
		c.t.Error(err)
	}
	return one, c.leave(s, &one, unlock)
}

// inside is what the lock is for.
func (c *Contention) inside(s *Speaker, counters redis.Conn, one *Section) error {
	look := func() (int64, error) {
		n, err := redis.Int64(counters.Do("GET", one.key))
		if errors.Is(err, redis.ErrNil) {
			return 0, nil
		}
		return n, err
	}
	n, err := look()
	if err != nil {
		return err
	}
	if c.pause > 0 {
		time.Sleep(rand.N(c.pause))
	}
	if !s.Told(one.key).IsZero() {
		return nil // who was told does not write
	}
	if one.shared {
		again, err := look()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.readers++; again != n && s.Told(one.key).IsZero() {
			c.torn++
		}
		return err
	}
	if _, err := counters.Do("SET", one.key, n+1); err != nil {
		return err
	}
	one.wrote = n + 1
	c.Added.Add(1)
	c.left.Add(-1)
	return nil
}

// leave gives the lock back; what was surely not done is asked for again.
func (c *Contention) leave(s *Speaker, one *Section, unlock []string) error {
	one.to = time.Now()
	defer func() {
		if at := s.Told(one.key); !at.IsZero() {
			one.told = true
			if at.Before(one.to) {
				one.to = at
			}
		}
	}()
	for {
		got := s.Ask(unlock...)
		switch {
		case got.Err != nil:
			one.broke = true
			return got.Err
		case got.Frame == ":1\r\n":
			one.freed = got.At
			return nil
		case strings.HasPrefix(got.Frame, "-LOCKLOST"):
			one.lost = true
			c.other("UNLOCK " + LossReason(got.Frame))
			return nil
		}
		c.other("UNLOCK " + got.Frame)
		if !strings.HasPrefix(got.Frame, "-ERR upstream unavailable") {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// LossReason is the word in brackets.
func LossReason(frame string) string {
	_, rest, _ := strings.Cut(frame, "(")
	reason, _, _ := strings.Cut(rest, ")")
	return "LOCKLOST " + reason
}
