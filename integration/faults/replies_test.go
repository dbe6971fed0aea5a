package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The cut wires of TestLostReplies.
const (
	cutProxies = 12
	cutClients = 48
	cutShared  = 16              // locks that all clients contend for
	settling   = 8 * time.Second // after an error, for the engine to make true what it promised
)

// lossy is what all clients of TestLostReplies share.
type lossy struct {
	t        testing.TB
	stop     atomic.Bool  // something is wrong
	done     atomic.Bool  // no new locks
	verbs    atomic.Int64 // answered
	lost     atomic.Int64 // of those that may not wait, answered after more than 0.9 s: their script's reply was lost
	unknown  atomic.Int64 // answered with an error, since that took too long
	away     atomic.Int64 // answered with an error that says that nothing was done
	reads    atomic.Int64 // comparisons of belief with Redis
	settled  atomic.Int64 // ns, the longest time until Redis was as promised after an error
	inside   [cutShared]atomic.Int64
	served   [cutProxies]atomic.Int64 // answers that say what was done
	overlaps atomic.Int64
}

// cutClient believes something about its own locks and compares it with Redis past every proxy.
type cutClient struct {
	*lossy
	n     int
	w     *harness.Wire
	redis redis.Conn
	fresh int
	said  []string // the last verbs and answers, for the report
}

func (c *cutClient) fail(format string, args ...any) {
	c.t.Errorf("client %d: "+format+"\nlast: %s", append(append([]any{c.n}, args...), strings.Join(c.said, "\n      "))...)
	c.stop.Store(true)
}

// verb sends one verb; answer is its line, unknown says that the wire's trouble answered instead. While Redis is out of
// reach, and surely nothing was done, it tries again.
func (c *cutClient) verb(args ...string) (answer string, unknown bool) {
	for {
		answer = c.once(args...)
		if !strings.HasPrefix(answer, "-ERR upstream unavailable") || c.stop.Load() {
			return answer, strings.HasPrefix(answer, "-ERR the reply to this")
		}
		c.away.Add(1)
		time.Sleep(5 * time.Millisecond)
	}
}

func (c *cutClient) once(args ...string) (answer string) {
	began := time.Now()
	reply, err := c.w.Try(args...)
	took := time.Since(began)
	if err != nil {
		c.fail("%q: %v", args, err)
		return ""
	}
	answer = strings.TrimSuffix(reply, "\r\n")
	if c.said = append(c.said, fmt.Sprintf("%s %q: %s (%v)", began.Format("05.000"), args, answer, took.Round(time.Millisecond))); len(c.said) > 8 {
		c.said = c.said[1:]
	}
	c.verbs.Add(1)
	if took > 900*time.Millisecond && !slices.Contains(args, "BLOCK") {
		c.lost.Add(1)
	}
	switch {
	case strings.HasPrefix(answer, "-ERR the reply to this"):
		c.unknown.Add(1)
	case !strings.HasPrefix(answer, "-ERR upstream unavailable"):
		c.served[c.n%cutProxies].Add(1)
	}
	return answer
}

// count is what Redis holds of key: the fields and, if there is only one, its count.
func (c *cutClient) count(key string) (fields, count int, err error) {
	all, err := redis.StringMap(c.redis.Do("HGETALL", key))
	for _, v := range all {
		count, _ = strconv.Atoi(v)
	}
	return len(all), count, err
}

// must compares Redis with what the client believes, at once, or, after an answer that left it open, within settling.
func (c *cutClient) must(key string, want int, open bool) bool {
	began := time.Now()
	for {
		fields, count, err := c.count(key)
		c.reads.Add(1)
		if err == nil && count == want && fields == min(want, 1) {
			if took := int64(time.Since(began)); open && took > c.settled.Load() {
				c.settled.Store(took)
			}
			return true
		}
		if !open || time.Since(began) > harness.Bound(settling) {
			c.fail("%s has count %d of %d owners, the client believes %d (open %v, %v)", key, count, fields, want, open, err)
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// named has an owner take a lock nobody else wants, several times, and give it back. What a LOCK without an answer has done stays, and an UNLOCK
// without one is said again.
func (c *cutClient) named(key, id string, times int) {
	for range times {
		answer, unknown := c.verb("LOCK", key, "OWNER", id, "PX", "60000")
		switch {
		case c.stop.Load() || unknown:
		case answer != "+OK":
			c.fail("LOCK %s: %s", key, answer)
		case !c.must(key, 1, false):
		}
	}
	for !c.stop.Load() {
		answer, unknown := c.verb("UNLOCK", key, "OWNER", id)
		switch {
		case unknown:
			continue
		case answer != ":1" && !strings.HasPrefix(answer, "-NOTHELD "):
			c.fail("UNLOCK %s: %s", key, answer)
		default:
			c.must(key, 0, false)
		}
		return
	}
}

// own takes and enters a lock nobody else wants, and leaves it again, comparing after every answer.
func (c *cutClient) own(key string, times int, options ...string) {
	held := 0
	for range times {
		answer, unknown := c.verb(append([]string{"LOCK", key}, options...)...)
		switch {
		case c.stop.Load():
			return
		case answer == "+OK":
			held++
		case unknown:
			// Given back, since nobody heard of it.
		default:
			c.fail("LOCK %s: %s", key, answer)
			return
		}
		if !c.must(key, held, unknown) {
			return
		}
	}
	for held > 0 && !c.stop.Load() {
		answer, unknown := c.verb("UNLOCK", key)
		held--
		switch {
		case c.stop.Load():
			return
		case unknown:
		case answer == ":1" && held == 0 || answer == ":0" && held > 0:
		default:
			c.fail("UNLOCK %s with %d holds left: %s", key, held, answer)
			return
		}
		if !c.must(key, held, unknown) {
			return
		}
	}
}

// shared contends: between the answers nobody else may be inside.
func (c *cutClient) shared(k int) {
	key := "shared:" + strconv.Itoa(k)
	answer, unknown := c.verb("LOCK", key, "BLOCK", "3000")
	if unknown || answer == "$-1" || c.stop.Load() {
		return
	}
	if answer != "+OK" {
		c.fail("LOCK %s: %s", key, answer)
		return
	}
	if n := c.inside[k].Add(1); n != 1 {
		c.overlaps.Add(1)
		c.fail("%d clients hold %s", n, key)
	}
	if !c.must(key, 1, false) {
		return
	}
	c.inside[k].Add(-1)
	if answer, unknown = c.verb("UNLOCK", key); answer != ":1" && !unknown && !c.stop.Load() {
		c.fail("UNLOCK %s: %s", key, answer)
	}
}

func (c *cutClient) run() {
	key := "own:" + strconv.Itoa(c.n)
	for !c.stop.Load() && !c.done.Load() {
		c.fresh++
		switch rand.N(6) {
		case 0:
			c.own(key, 1)
		case 1:
			c.own(key, 1+rand.N(3), "SELF")
		case 2, 3:
			c.named(key, fmt.Sprintf("o%d-%d", c.n, c.fresh), 1+rand.N(3))
		case 4:
			c.shared(rand.N(cutShared))
		default:
			c.own(key, 2, "SELF", "PX", "60000")
		}
	}
}

// cutter cuts one proxy's wire at random times until so many replies were lost. On a busy machine a connection may take longer than
// from one cut to the next: what has served nobody is left alone, or nothing could ever be given back.
func (l *lossy) cutter(i int, wire *testredis.Proxy, cuts *atomic.Int64, most int64) {
	served := int64(0)
	for end := time.Now().Add(2 * harness.Patience); !l.stop.Load() && time.Now().Before(end) && min(l.lost.Load(), cuts.Load()) < most; {
		time.Sleep(time.Duration(20+rand.N(250)) * time.Millisecond)
		if now := l.served[i].Load(); now > served {
			served = now
			wire.CutAll()
			cuts.Add(1)
		}
	}
}

// Replies that are lost between script and answer leave no hold that nobody owns, no count that is too high, and no
// owner who is told that it does not hold what it holds.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	most := int64(200)
	if harness.Long() {
		most = 1000
	}
	var cuts atomic.Int64
	all := &lossy{t: t}
	var wires [cutProxies]*testredis.Proxy
	var addrs [cutProxies]string
	for i := range wires {
		wires[i] = testredis.NewProxy(t, server.Addr())
		addrs[i] = harness.StartProxy(t, "redis://"+wires[i].Addr()).Addr()
	}
	clients := make([]*cutClient, cutClients)
	for i := range clients {
		clients[i] = &cutClient{lossy: all, n: i, w: harness.Dial(t, addrs[i%cutProxies]), redis: server.Dial(t)}
		clients[i].verb("CLIENT", "ID")
	}
	for _, w := range wires {
		w.Latency(time.Millisecond) // replies are under way for some time
	}
	began := time.Now()
	var working, cutting sync.WaitGroup
	for _, c := range clients {
		working.Go(c.run)
	}
	for i, w := range wires {
		cutting.Go(func() { all.cutter(i, w, &cuts, most) })
	}
	cutting.Wait()
	took := time.Since(began)
	all.done.Store(true)
	working.Wait()
	t.Logf("%d cuts in %v: %d verbs answered, %d of them (waits not counted) after a look at what a script whose reply was lost had done, %d more with an error, %d while Redis was out of reach; %d times Redis was compared with the client's belief, at most %v after an error",
		cuts.Load(), took.Round(time.Millisecond), all.verbs.Load(), all.lost.Load(), all.unknown.Load(), all.away.Load(), all.reads.Load(),
		time.Duration(all.settled.Load()).Round(time.Millisecond))
	if all.lost.Load() < most/3 {
		t.Error("hardly any reply was lost: the test is weak")
	}
	// The clients go with what they hold; nothing may stay.
	for _, c := range clients {
		c.w.Reset()
	}
	gone := time.Now()
	left := leftovers(t, server)
	for ; len(left) > 0 && time.Since(gone) < harness.Bound(settling); left = leftovers(t, server) {
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("all locks were free %v after the clients had gone", time.Since(gone).Round(time.Millisecond))
	if len(left) > 0 {
		t.Errorf("%v after all clients have gone Redis has %v", time.Since(gone), left)
		for _, c := range clients {
			t.Logf("client %d of proxy %s, at last:\n%s", c.n, addrs[c.n%cutProxies], strings.Join(c.said, "\n"))
		}
	}
}

// leftovers lists the locks in Redis, with what they hold.
func leftovers(t *testing.T, s *testredis.Server) (left []string) {
	names, _ := redis.Strings(s.Do(t, "KEYS", "*"), nil)
	for _, name := range names {
		if strings.HasPrefix(name, "own:") || strings.HasPrefix(name, "shared:") {
			left = append(left, fmt.Sprintf("%s %s", name, s.Do(t, "HGETALL", name)))
		}
	}
	return left
}
