package lock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400)            // what is simulated is small, and makes much garbage
	_ = flag.Set("test.parallel", "6") // those that run side by side wait for leases and clusters most of the time
	testredis.VerifyTestMain(m)
}

var clientNumbers atomic.Int64

// engine is a Manager at work on a server.
func engine(t testing.TB, url string, o ManagerOptions) *Manager {
	t.Helper()
	where, err := upstream.ParseURL(url)
	target := where.Target()
	if err != nil {
		t.Fatal(err)
	}
	o.Logger = testLog()
	ctl := upstream.NewControl(target, upstream.ControlOptions{DialTimeout: 10 * time.Second}) // a busy machine may take some seconds
	return atWork(t, New(sharded.Single(ctl), o), ctl.Close)
}

// testLog says nothing, unless LOCK_TEST_LOG is set.
func testLog() *slog.Logger {
	if os.Getenv("LOCK_TEST_LOG") != "" {
		return slog.Default()
	}
	return slog.New(slog.DiscardHandler)
}

// atWork runs a Manager for as long as the test lasts; then what it works with is closed, under it if it hangs.
func atWork(t testing.TB, m *Manager, closeAll func()) *Manager {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = m.Run(ctx); close(ended) }()
	t.Cleanup(func() {
		cancel()
		hung := time.AfterFunc(5*time.Second, func() { m.Abort(); closeAll() })
		<-ended
		hung.Stop()
		closeAll()
	})
	return m
}

// locking is a LOCK under way.
func locking(c *Client, r Request) <-chan error {
	got := make(chan error, 1)
	go func() {
		_, err := c.Lock(context.Background(), r)
		got <- err
	}()
	return got
}

// granted fails the test when a LOCK under way does not get the lock.
func granted(t *testing.T, got <-chan error, what string) {
	t.Helper()
	select {
	case err := <-got:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: not granted", what)
	}
}

// redisServer is a real one, or one in a bubble.
type redisServer interface {
	Do(t testing.TB, args ...any) any
}

// heldByRedisson has Redisson hold a lock for an hour.
func heldByRedisson(t *testing.T, s redisServer, key string) {
	s.Do(t, "HSET", key, "redisson:1", "1")
	s.Do(t, "PEXPIRE", key, 3600000)
}

// subscribers counts the subscriptions to a channel of either kind.
func subscribers(t *testing.T, s redisServer, channel string) int {
	n := 0
	for _, what := range []string{"NUMSUB", "SHARDNUMSUB"} {
		reply, err := redis.Values(s.Do(t, "PUBSUB", what, channel), nil)
		if err != nil {
			t.Fatal(err)
		}
		k, _ := redis.Int(reply[1], nil)
		n += k
	}
	return n
}

// losses collects what is pushed to a client.
type losses struct {
	mu  sync.Mutex
	all []Loss
}

func (l *losses) push(x Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, x)
}

func (l *losses) reasons() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := ""
	for _, x := range l.all {
		out += x.Key + ":" + x.Reason + " "
	}
	return out
}

func client(m *Manager) (*Client, *losses) {
	l := &losses{}
	return m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "test", Push: l.push}), l
}

func mustLock(t *testing.T, c *Client, r Request) Grant {
	t.Helper()
	g, err := c.Lock(context.Background(), r)
	if err != nil {
		t.Fatalf("LOCK %+v: %v", r, err)
	}
	return g
}

// lockCopied is mustLock for a lock that a replica is to have: on a busy machine it may have it later than is waited for.
func lockCopied(t *testing.T, c *Client, r Request) {
	t.Helper()
	eventually(t, 30*time.Second, "a replica has it in time", func() bool {
		_, err := c.Lock(context.Background(), r)
		if err != nil && !isCode(err, "NOREPLICAS") {
			t.Fatalf("LOCK %+v: %v", r, err)
		}
		return err == nil
	})
}

func mustUnlock(t *testing.T, c *Client, r UnlockRequest, free bool) {
	t.Helper()
	got, err := c.Unlock(context.Background(), r)
	if err != nil || got != free {
		t.Fatalf("UNLOCK %+v: %v %v, want %v", r, got, err, free)
	}
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
}

func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", within, what)
}

func hash(t *testing.T, s redisServer, key string) map[string]string {
	t.Helper()
	m, err := redis.StringMap(s.Do(t, "HGETALL", key), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pttl is for how many ms a lock lasts; of one that several may hold, the place that ends first, since the key lasts longer.
func pttl(t *testing.T, s redisServer, key string) int64 {
	if first, err := redis.Strings(s.Do(t, "ZRANGE", lockstore.PlacesKey(key), 0, 0, "WITHSCORES"), nil); err == nil && len(first) == 2 {
		ends, _ := strconv.ParseFloat(first[1], 64)
		now, _ := redis.Int64s(s.Do(t, "TIME"), nil)
		return int64(ends) - now[0]*1000 - now[1]/1000
	}
	return s.Do(t, "PTTL", key).(int64)
}

func TestLockIsRedissons(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	b, _ := client(m)

	listen := redis.PubSubConn{Conn: s.Dial(t)}
	if err := listen.Subscribe("redisson_lock__channel:{orders}"); err != nil {
		t.Fatal(err)
	}
	listen.Receive()

	began := time.Now()
	mustLock(t, a, Request{Key: "orders"})
	if got := fmt.Sprint(hash(t, s, "orders")); got != fmt.Sprintf("map[%s:1]", a.Owner()) {
		t.Fatal(got)
	}
	if ttl := pttl(t, s, "orders"); ttl < 30000-time.Since(began).Milliseconds()-1 || ttl > 30000 {
		t.Fatal(ttl)
	}
	if _, err := b.Lock(context.Background(), Request{Key: "orders"}); !errors.Is(err, ErrNotAcquired) {
		t.Fatal(err)
	}
	mustLock(t, a, Request{Key: "orders"})
	if got := hash(t, s, "orders")[a.Owner()]; got != "2" {
		t.Fatal(got)
	}
	mustUnlock(t, a, UnlockRequest{Key: "orders"}, false)
	mustUnlock(t, a, UnlockRequest{Key: "orders"}, true)
	msg, ok := listen.Receive().(redis.Message)
	if !ok || string(msg.Data) != "0" {
		t.Fatal(msg)
	}
	if n := s.Do(t, "DBSIZE").(int64); n != 0 {
		t.Fatalf("%d keys left", n)
	}
	_, err := a.Unlock(context.Background(), UnlockRequest{Key: "orders"})
	wantCode(t, err, "NOTHELD")
}

func TestRedissonHolderBlocksAndItsMessageWakes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: 10 * time.Second})
		a, _ := client(m)
		heldByRedisson(t, s, "orders")
		got := locking(a, Request{Key: "orders", Blocks: true})
		eventually(t, 15*time.Second, "subscribed", func() bool { return subscribers(t, s, lockstore.ChannelOf("orders")) == 1 })
		time.Sleep(20 * time.Millisecond)
		s.Do(t, "DEL", "orders")
		began := time.Now()
		s.Do(t, "PUBLISH", "redisson_lock__channel:{orders}", "0")
		granted(t, got, "LOCK")
		if took := time.Since(began); took > 2*time.Second {
			t.Fatalf("woken after %v", took)
		}
	})
}

func TestDisconnect(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, _ := client(m)
		b, _ := client(m)
		d, _ := client(m)
		mustLock(t, a, Request{Key: "gone"})
		mustLock(t, a, Request{Key: "gone"})
		mustLock(t, b, Request{Key: "left"})
		mustLock(t, d, Request{Key: "unsettled"})
		d.LeaveToExpire()
		_, err := d.Unlock(context.Background(), UnlockRequest{Key: "none"})
		wantCode(t, err, "NOTHELD")
		_, err = d.Unlock(context.Background(), UnlockRequest{Key: "unsettled"})
		wantCode(t, err, "ERR")
		a.Close(Gone)
		b.Close(Left)
		d.Close(Gone)
		eventually(t, 15*time.Second, "released", func() bool { return s.Do(t, "EXISTS", "gone").(int64) == 0 })
		time.Sleep(50 * time.Millisecond)
		if s.Do(t, "EXISTS", "left", "unsettled").(int64) != 2 {
			t.Fatal("released what must run out")
		}
		if n := m.Stats().Held; n != 0 {
			t.Fatal(n)
		}
	})
}

func TestWrongTypeAndKinds(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	s.Do(t, "SET", "str", "x")
	s.Do(t, "HSET", "rw", "mode", "read", a.Owner(), "1")
	s.Do(t, "HSET", "data", "name", "bob")
	for _, key := range []string{"str"} {
		_, err := a.Lock(context.Background(), Request{Key: key})
		var reply *upstream.ReplyError
		if !errors.As(err, &reply) || reply.Line != "WRONGTYPE Operation against a key holding the wrong kind of value" {
			t.Fatal(err)
		}
		_, err = a.Unlock(context.Background(), UnlockRequest{Key: key})
		wantCode(t, err, "NOTHELD")
	}
	_, err := a.Lock(context.Background(), Request{Key: "rw"})
	wantCode(t, err, "LOCKKIND")
	_, err = a.Unlock(context.Background(), UnlockRequest{Key: "rw"})
	wantCode(t, err, "NOTHELD")
	_, err = a.Unlock(context.Background(), UnlockRequest{Key: "data", Force: true})
	wantCode(t, err, "WRONGTYPE")
	if s.Do(t, "EXISTS", "data").(int64) != 1 {
		t.Fatal("somebody's data deleted")
	}
}

func TestForce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, lost := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		mustUnlock(t, b, UnlockRequest{Key: "k", Force: true}, true)
		mustUnlock(t, b, UnlockRequest{Key: "k", Force: true}, false)
		eventually(t, 15*time.Second, "told", func() bool { return lost.reasons() == "k:forced " })
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"})
		wantCode(t, err, "LOCKLOST")
	})
}

func TestReentry(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	a.SetLibrary(true)
	mustLock(t, a, Request{Key: "k"})
	_, err := a.Lock(context.Background(), Request{Key: "k"})
	wantCode(t, err, "OWNERREQUIRED")
	mustLock(t, a, Request{Key: "k", Self: true})
	mustUnlock(t, a, UnlockRequest{Key: "k", All: true}, true)

	// Re-entry never shortens.
	mustLock(t, a, Request{Key: "k", Lease: 20000})
	mustLock(t, a, Request{Key: "k", Lease: 1000, Self: true})
	if ttl := pttl(t, s, "k"); ttl <= 1000 {
		t.Fatal(ttl)
	}
}

func TestOwnerAcrossConnections(t *testing.T) {
	s := testredis.Start(t)
	m1 := engine(t, s.URL(), ManagerOptions{})
	m2 := engine(t, s.URL(), ManagerOptions{})
	for range 10 {
		c, _ := client(m1)
		mustLock(t, c, Request{Key: "k", Owner: "job-1", Lease: 30_000})
		c.Close(Gone)
	}
	if hash(t, s, "k")["job-1"] != "1" {
		t.Fatal(hash(t, s, "k"))
	}
	c, _ := client(m2)
	mustUnlock(t, c, UnlockRequest{Key: "k", Owner: "job-1"}, true)
	_, err := c.Unlock(context.Background(), UnlockRequest{Key: "k", Owner: "job-1"}) // sent again
	wantCode(t, err, "NOTHELD")
	_, err = c.Unlock(context.Background(), UnlockRequest{Key: "k", Owner: "job-2"})
	wantCode(t, err, "NOTHELD")
}

func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		got := locking(b, Request{Key: "k", Blocks: true})
		eventually(t, 15*time.Second, "waiting", func() bool { return m.Stats().Waiting == 1 })
		m.Drain()
		wantCode(t, <-got, "DRAINING")
		_, err := b.Lock(context.Background(), Request{Key: "other"})
		wantCode(t, err, "DRAINING")
		mustLock(t, a, Request{Key: "k"})
		mustUnlock(t, a, UnlockRequest{Key: "k", All: true}, true)
	})
}

// TestExclusion has many clients of two proxies count under one lock.
func TestExclusion(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	engines := []*Manager{engine(t, s.URL(), ManagerOptions{}), engine(t, s.URL(), ManagerOptions{})}
	const clients, rounds = 32, 30
	var inside atomic.Int32
	total := 0
	var all sync.WaitGroup
	for i := range clients {
		c, _ := client(engines[i%2])
		all.Add(1)
		go func() {
			defer all.Done()
			for range rounds {
				if _, err := c.Lock(context.Background(), Request{Key: "k", Blocks: true}); err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two inside")
				}
				total++
				inside.Add(-1)
				if _, err := c.Unlock(context.Background(), UnlockRequest{Key: "k"}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	if total != clients*rounds {
		t.Fatal(total)
	}
}

func TestFence(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	last := int64(0)
	for range 5 {
		g := mustLock(t, a, Request{Key: "f", Fence: true})
		if g.Token <= last {
			t.Fatal(g.Token, last)
		}
		last = g.Token
	}
	for _, kind := range []Kind{Plain, Write} {
		tokensRise(t, a, "g"+kind.String(), kind)
	}
	if text, _ := redis.String(s.Do(t, "GET", "redisson_lock_token:{f}"), nil); text != fmt.Sprint(last) {
		t.Fatal(text)
	}
	if hash(t, s, "f")[a.Owner()] != "5" {
		t.Fatal(hash(t, s, "f"))
	}
	mustUnlock(t, a, UnlockRequest{Key: "f", All: true}, true)
	s.Do(t, "SET", "redisson_lock_token:{f}", "9007199254740991")
	if _, err := a.Lock(context.Background(), Request{Key: "f", Fence: true}); err == nil {
		t.Fatal("a token past 2^53")
	}
	if s.Do(t, "EXISTS", "f").(int64) != 0 {
		t.Fatal("a failed LOCK changed something")
	}
}

func tokensRise(t *testing.T, c *Client, key string, kind Kind) {
	t.Helper()
	former := mustLock(t, c, Request{Key: key, Kind: kind, Fence: true, Owner: "former", Lease: 60_000}).Token
	mustUnlock(t, c, UnlockRequest{Key: key, Side: kind, Owner: "former"}, true)
	mustLock(t, c, Request{Key: key, Kind: kind, Owner: "next", Lease: 60_000})
	for last, times := former, 0; times < 2; times++ {
		g := mustLock(t, c, Request{Key: key, Kind: kind, Fence: true, Owner: "next", Lease: 60_000})
		if g.Token <= last {
			t.Errorf("%s: the next owner got token %d after %d", kind, g.Token, last)
		}
		last = g.Token
	}
}
