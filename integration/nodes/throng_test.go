package nodes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// stuck is after how long a command that waits for 20 s at most counts as never answered.
const stuck = 75 * time.Second

// speaker is a connection in RESP3 whose pushes are noted when they come, also while nothing is asked.
type speaker struct {
	w       *harness.Wire
	replies chan spoken

	mu   sync.Mutex
	lost map[string]time.Time // keys of which a loss was pushed, and when
}

type spoken struct {
	frame string
	at    time.Time
	err   error
}

// newSpeaker connects; login, if any, are a user and a password.
func newSpeaker(t testing.TB, addr string, login ...string) (*speaker, error) {
	c, err := netDial(addr)
	if err != nil {
		return nil, err
	}
	s := &speaker{w: harness.NewWire(t, c), replies: make(chan spoken, 16), lost: map[string]time.Time{}}
	greeting := []string{"HELLO", "3"}
	if len(login) > 0 {
		greeting = append(append(greeting, "AUTH"), login...)
	}
	for _, hello := range [][]string{greeting, {"CLIENT", "CAPA", "lock-lost"}} {
		if got, err := s.w.Try(hello...); err != nil || harness.IsErrorFrame(got) {
			s.w.Close()
			return nil, errors.Join(err, fmt.Errorf("%s: %q", hello[0], got))
		}
	}
	go s.listen()
	return s, nil
}

func (s *speaker) listen() {
	for {
		frame, err := s.w.TryRead(time.Hour)
		now := time.Now()
		if strings.HasPrefix(frame, ">") && err == nil {
			if words := strings.Split(frame, "\r\n"); len(words) > 4 && words[2] == "lock-lost" {
				s.mu.Lock()
				s.lost[words[4]] = now
				s.mu.Unlock()
			}
			continue
		}
		s.replies <- spoken{frame, now, err}
		if err != nil {
			return
		}
	}
}

// ask sends a command and gives the reply, and when it came.
func (s *speaker) ask(args ...string) spoken {
	if err := s.w.TrySend(args...); err != nil {
		return spoken{err: err, at: time.Now()}
	}
	return s.answer(args)
}

func (s *speaker) answer(args []string) spoken {
	timer := time.NewTimer(stuck)
	defer timer.Stop()
	select {
	case r := <-s.replies:
		return r
	case <-timer.C:
		return spoken{err: fmt.Errorf("%q: %w", args, errStuck), at: time.Now()}
	}
}

var errStuck = errors.New("no answer, ever")

// told is when the loss of a key was pushed since the last forget; zero: it was not.
func (s *speaker) told(key string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost[key]
}

func (s *speaker) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lost, key)
}

// section is one time that a client took itself for the holder of a lock.
type section struct {
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

// throng is clients of several proxies that count under locks: each adds one to a counter on another server by GET and SET,
// which loses counts as soon as two of them do it at a time.
type throng struct {
	t       testing.TB
	keys    []string
	proxies []*harness.Proxy
	options []string      // of LOCK
	pause   time.Duration // the most between GET and SET

	counters *testredis.Server
	left     atomic.Int64
	added    atomic.Int64
	work     sync.WaitGroup

	mu       sync.Mutex
	sections []section
	others   map[string]int // replies that are no grant and no 1
	readers  int
	torn     int // readers who saw a write between their two looks
}

func newThrong(t testing.TB, keys []string, proxies []*harness.Proxy, options ...string) *throng {
	return &throng{t: t, keys: keys, proxies: proxies, options: options, pause: 2 * time.Millisecond,
		counters: testredis.Start(t), others: map[string]int{}}
}

// start has so many clients of each proxy add until total is reached; halt ends them before.
func (c *throng) start(each int, total int64) {
	c.left.Store(total)
	c.t.Cleanup(c.halt)
	for range each {
		for i := range c.proxies {
			c.work.Go(func() { c.run(i) })
		}
	}
}

func (c *throng) halt() {
	c.left.Store(0)
	c.work.Wait()
}

// run is one client, which comes again when its connection breaks.
func (c *throng) run(proxy int) {
	counters, err := redis.Dial("tcp", c.counters.Addr())
	if err != nil {
		c.t.Error(err)
		return
	}
	defer counters.Close()
	var s *speaker
	var mine []section
	for c.left.Load() > 0 && !errors.Is(err, errStuck) {
		if s == nil {
			if s, err = newSpeaker(c.t, c.proxies[proxy].Addr()); err != nil {
				time.Sleep(20 * time.Millisecond)
				continue
			}
		}
		var one section
		if one, err = c.once(s, counters); !one.from.IsZero() {
			one.proxy = proxy
			mine = append(mine, one)
		}
		if err != nil {
			c.other(strings.SplitN(err.Error(), ":", 2)[0])
			s.w.Close()
			s = nil
		}
	}
	if errors.Is(err, errStuck) {
		c.t.Error(err)
	}
	if s != nil {
		s.w.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sections = append(c.sections, mine...)
}

func (c *throng) other(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others[strings.TrimSpace(what)]++
}

// verbs of a key: every third is for LOCK, LOCK and FAIRLOCK, or readers and writers.
func (c *throng) verb(k int) (verb string, unlock []string) {
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
func (c *throng) once(s *speaker, counters redis.Conn) (one section, err error) {
	k := rand.IntN(len(c.keys))
	verb, unlock := c.verb(k)
	one = section{key: c.keys[k], shared: verb == "RLOCK"}
	s.forget(one.key)
	one.asked = time.Now()
	got := s.ask(append([]string{verb, one.key, "BLOCK", "20000"}, c.options...)...)
	if got.err != nil {
		return one, got.err
	}
	if got.frame != "+OK\r\n" {
		c.other(verb + " " + got.frame)
		if harness.IsErrorFrame(got.frame) {
			time.Sleep(5 * time.Millisecond)
		}
		return one, nil
	}
	one.from = got.at
	if err := c.inside(s, counters, &one); err != nil {
		c.t.Error(err)
	}
	return one, c.leave(s, &one, unlock)
}

// inside is what the lock is for.
func (c *throng) inside(s *speaker, counters redis.Conn, one *section) error {
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
	if !s.told(one.key).IsZero() {
		return nil // who was told does not write
	}
	if one.shared {
		again, err := look()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.readers++; again != n && s.told(one.key).IsZero() {
			c.torn++
		}
		return err
	}
	if _, err := counters.Do("SET", one.key, n+1); err != nil {
		return err
	}
	one.wrote = n + 1
	c.added.Add(1)
	c.left.Add(-1)
	return nil
}

// leave gives the lock back; what was surely not done is asked for again.
func (c *throng) leave(s *speaker, one *section, unlock []string) error {
	one.to = time.Now()
	defer func() {
		if at := s.told(one.key); !at.IsZero() {
			one.told = true
			if at.Before(one.to) {
				one.to = at
			}
		}
	}()
	for {
		got := s.ask(unlock...)
		switch {
		case got.err != nil:
			one.broke = true
			return got.err
		case got.frame == ":1\r\n":
			one.freed = got.at
			return nil
		case strings.HasPrefix(got.frame, "-LOCKLOST"):
			one.lost = true
			c.other("UNLOCK " + lossReason(got.frame))
			return nil
		}
		c.other("UNLOCK " + got.frame)
		if !strings.HasPrefix(got.frame, "-ERR upstream unavailable") {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// lossReason is the word in brackets.
func lossReason(frame string) string {
	_, rest, _ := strings.Cut(frame, "(")
	reason, _, _ := strings.Cut(rest, ")")
	return "LOCKLOST " + reason
}

// judged is what there was to say of a throng.
type judged struct {
	sections, told, lost, broke int
	overlaps                    int
	worst                       time.Duration   // of an overlap
	wakes                       []time.Duration // from UNLOCK's answer to the grant of one who waited, sorted
}

// judge looks for two holders at a time, but for those whose loss was told before, and for lost counts. slack is by how much
// the end that a client knows of may be late on a busy machine.
func (c *throng) judge(slack time.Duration) (j judged) {
	c.t.Helper()
	byKey := map[string][]section{}
	for _, s := range c.sections {
		j.sections++
		if s.told {
			j.told++
		}
		if s.lost {
			j.lost++
		}
		if s.broke {
			j.broke++
		}
		byKey[s.key] = append(byKey[s.key], s)
	}
	for key, all := range byKey {
		slices.SortFunc(all, func(a, b section) int { return a.from.Compare(b.from) })
		c.overlapping(key, all, slack, &j)
		c.lostCounts(key, all)
	}
	slices.Sort(j.wakes)
	if c.torn > 0 {
		c.t.Errorf("%d of %d readers saw somebody write", c.torn, c.readers)
	}
	return j
}

// overlapping finds holders of one key at the same time.
func (c *throng) overlapping(key string, all []section, slack time.Duration, j *judged) {
	var alone, any section // those that end last, of the ones before
	var freed time.Time
	for _, s := range all {
		against := alone
		if !s.shared {
			against = any
		}
		if over := against.to.Sub(s.from); over > 0 && !against.to.IsZero() {
			j.overlaps++
			j.worst = max(j.worst, over)
			if over > slack {
				c.t.Errorf("%s: two holders for %v: %s and %s", key, over, describeSection(against), describeSection(s))
			}
		}
		if !freed.IsZero() && s.asked.Before(freed) && !s.shared {
			j.wakes = append(j.wakes, max(0, s.from.Sub(freed)))
		}
		freed = s.freed
		if s.shared {
			freed = time.Time{} // others may read on
		}
		if s.to.After(any.to) {
			any = s
		}
		if s.to.After(alone.to) && !s.shared {
			alone = s
		}
	}
}

func describeSection(s section) string {
	const hms = "05.000000"
	return fmt.Sprintf("[proxy %d shared %v asked %s from %s to %s freed %s wrote %d told %v lost %v broke %v]", s.proxy, s.shared,
		s.asked.Format(hms), s.from.Format(hms), s.to.Format(hms), s.freed.Format(hms), s.wrote, s.told, s.lost, s.broke)
}

// lostCounts finds a value that was written twice. With one who was told of a loss the order of the two is open: it had
// looked at its connection before it wrote.
func (c *throng) lostCounts(key string, all []section) {
	seen := map[int64]section{}
	sure, most := true, int64(0)
	for _, s := range all {
		sure = sure && !s.told && !s.lost
	}
	n := int64(0)
	for _, s := range all {
		if s.wrote == 0 {
			continue
		}
		n++
		most = max(most, s.wrote)
		if before, twice := seen[s.wrote]; twice && sure {
			c.t.Errorf("%s: a count was lost: %s and %s", key, describeSection(before), describeSection(s))
		}
		seen[s.wrote] = s
	}
	if sure && n != most {
		c.t.Errorf("%s: %d added, %d are there", key, n, most)
	}
}

func (j judged) String() string {
	return fmt.Sprintf("%d sections, %d told by push, %d by LOCKLOST, %d connections broke inside; %d overlaps (longest %v); wake-ups: %s",
		j.sections, j.told, j.lost, j.broke, j.overlaps, j.worst, quantiles(j.wakes))
}

// quantiles of sorted times.
func quantiles(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "none"
	}
	at := func(q float64) time.Duration {
		return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d, p50 %v, p99 %v, longest %v", len(sorted), at(.5), at(.99), at(1))
}
