package locks

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// redissonName is what Redisson's prefixName makes of prefix and a lock's name, spelt out.
type redissonName struct{ lock, channel, token string }

var redissonNames = []redissonName{
	{"orders", "redisson_lock__channel:{orders}", "redisson_lock_token:{orders}"},
	{"{orders}:7", "redisson_lock__channel:{orders}:7", "redisson_lock_token:{orders}:7"},
	{"a{b", "redisson_lock__channel:a{b", "redisson_lock_token:a{b"},
	{"a}b", "redisson_lock__channel:{a}b}", "redisson_lock_token:{a}b}"},
	{"имя 1", "redisson_lock__channel:{имя 1}", "redisson_lock_token:{имя 1}"},
}

// hash reads a hash past the proxy.
func hash(t testing.TB, s *testredis.Server, key string) map[string]string {
	t.Helper()
	m, err := redis.StringMap(s.Do(t, "HGETALL", key), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// onlyOwner is the one field of a lock's hash.
func onlyOwner(t testing.TB, s *testredis.Server, key string) string {
	t.Helper()
	h := hash(t, s, key)
	if len(h) != 1 {
		t.Fatalf("%s is %v", key, h)
	}
	for owner := range h {
		return owner
	}
	return ""
}

func pttl(t testing.TB, s *testredis.Server, key string) int64 {
	t.Helper()
	n, err := redis.Int64(s.Do(t, "PTTL", key), nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// listen subscribes past the proxy; every message comes as "channel message".
func listen(t testing.TB, s *testredis.Server, channels ...any) <-chan string {
	t.Helper()
	c := redis.PubSubConn{Conn: s.Dial(t)}
	if err := c.Subscribe(channels...); err != nil {
		t.Fatal(err)
	}
	for range channels {
		c.Receive()
	}
	heard := make(chan string, 64)
	go hear(c, heard)
	return heard
}

func hear(c redis.PubSubConn, heard chan<- string) {
	for {
		switch m := c.Receive().(type) {
		case redis.Message:
			heard <- m.Channel + " " + string(m.Data)
		case error:
			return // the connection is closed by its cleanup
		}
	}
}

func expectHeard(t testing.TB, heard <-chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Fatalf("heard %q, want %q", got, want)
		}
	case <-time.After(harness.Patience):
		t.Fatalf("never heard %q", want)
	}
}

func expectSilence(t testing.TB, heard <-chan string, d time.Duration) {
	t.Helper()
	select {
	case got := <-heard:
		t.Fatalf("heard %q", got)
	case <-time.After(d):
	}
}

var implicitOwner = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:[0-9]+$`)

// What a plain lock leaves in Redis, read past the proxy, is RLock's and RFencedLock's, byte for byte.
func TestRedissonBytes(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	w := harness.Dial(t, p.Addr())
	for _, n := range redissonNames {
		heard := listen(t, s, n.channel)
		harness.Expect(t, w, "+OK\r\n", "LOCK", n.lock)
		owner := onlyOwner(t, s, n.lock)
		if !implicitOwner.MatchString(owner) {
			t.Errorf("%s: owner %q", n.lock, owner)
		}
		if left := pttl(t, s, n.lock); left <= 0 || left > 30000 {
			t.Errorf("%s: PTTL %d, want up to 30000", n.lock, left)
		}
		if got := harness.Keys(t, s); len(got) != 1 || got[0] != n.lock {
			t.Errorf("keys %q, want only the lock", got)
		}
		harness.Expect(t, w, "+OK\r\n", "LOCK", n.lock, "EX", "100")
		if h := hash(t, s, n.lock); len(h) != 1 || h[owner] != "2" {
			t.Errorf("%s after re-entry: %v", n.lock, h)
		}
		harness.Expect(t, w, ":0\r\n", "UNLOCK", n.lock)
		if h := hash(t, s, n.lock); h[owner] != "1" {
			t.Errorf("%s after the first UNLOCK: %v", n.lock, h)
		}
		if left := pttl(t, s, n.lock); left <= 30000 || left > 100000 {
			t.Errorf("%s: PTTL %d after a re-entry with EX 100", n.lock, left)
		}
		expectSilence(t, heard, 20*time.Millisecond)
		harness.Expect(t, w, ":1\r\n", "UNLOCK", n.lock)
		expectHeard(t, heard, n.channel+" 0")
		if got := harness.Keys(t, s); len(got) != 0 {
			t.Errorf("keys %q are left", got)
		}
		w2 := harness.Dial(t, p.Addr())
		harness.Expect(t, w2, "+OK\r\n", "LOCK", n.lock, "PX", "5000")
		if left := pttl(t, s, n.lock); left <= 0 || left > 5000 {
			t.Errorf("%s: PTTL %d with PX 5000", n.lock, left)
		}
		harness.Expect(t, w, ":1\r\n", "UNLOCK", n.lock, "FORCE")
		expectHeard(t, heard, n.channel+" 0")
		expectHeard(t, heard, n.channel+" 0") // the proxy of the holder tells as well, when it has seen that the lock is gone
		harness.Expect(t, w, ":0\r\n", "UNLOCK", n.lock, "FORCE")
		expectHeard(t, heard, n.channel+" 0") // unlike Redisson's: one who waits for a lock that is gone hears of it
		expectSilence(t, heard, 20*time.Millisecond)
	}
}

func TestRedissonTokenKey(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	w := harness.Dial(t, p.Addr())
	for _, n := range redissonNames {
		before := redisMicros(t, s)
		first := harness.Number(t, w.Do("LOCK", n.lock, "FENCE"))
		if first < before || first > redisMicros(t, s) {
			t.Errorf("first token %d is not Redis' time, from %d on", first, before)
		}
		again := harness.Number(t, w.Do("LOCK", n.lock, "FENCE"))
		if again <= first {
			t.Errorf("re-entry: token %d after %d", again, first)
		}
		if got, _ := redis.Int64(s.Do(t, "GET", n.token), nil); got != again {
			t.Errorf("%s is %d, want %d", n.token, got, again)
		}
		if left := pttl(t, s, n.token); left != -1 {
			t.Errorf("%s has a TTL, %d", n.token, left)
		}
		harness.Expect(t, w, ":1\r\n", "UNLOCK", n.lock, "ALL")
		// A Redisson client that counted far ahead is followed.
		far := again + 1e12
		s.Do(t, "SET", n.token, far)
		s.Do(t, "INCR", n.token)
		if got := harness.Number(t, w.Do("LOCK", n.lock, "FENCE")); got != far+2 {
			t.Errorf("token %d after Redisson's %d", got, far+1)
		}
		harness.Expect(t, w, ":1\r\n", "UNLOCK", n.lock)
		s.Do(t, "SET", n.token, "9007199254740991")
		if got := w.Do("LOCK", n.lock, "FENCE"); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("no token is left: %q", got)
		}
		if h := hash(t, s, n.lock); len(h) != 0 {
			t.Errorf("a refused token left %v", h)
		}
	}
}

func redisMicros(t testing.TB, s *testredis.Server) int64 {
	t.Helper()
	parts, err := redis.Int64s(s.Do(t, "TIME"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return parts[0]*1e6 + parts[1]
}

// A Redisson client past the proxy: it excludes us, its publish wakes our waiter, and we exclude it.
func TestRedissonBesideUs(t *testing.T) {
	t.Parallel()
	const theirs = "0f8fad5b-d9cb-469f-a165-70867728950e:52"
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--wait-poll", "60s")
	holder, waiter := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	for _, n := range redissonNames {
		redissonAcquire(t, s, n.lock, theirs)
		harness.Expect(t, holder, "$-1\r\n", "LOCK", n.lock)
		if got := holder.Do("UNLOCK", n.lock); !strings.HasPrefix(got, "-NOTHELD ") {
			t.Errorf("UNLOCK of Redisson's lock: %q", got)
		}
		waiter.Send("LOCK", n.lock, "BLOCK", "60000")
		harness.Eventually(t, "the waiter listens", func() bool { return listeners(t, s, n.channel) == 1 })
		if !waiter.Silent(50 * time.Millisecond) {
			t.Fatalf("granted while Redisson holds it: %q", waiter.Read())
		}
		redissonRelease(t, s, n.lock, n.channel, theirs)
		released := time.Now()
		if got := waiter.Read(); got != "+OK\r\n" {
			t.Fatalf("the waiter got %q", got)
		}
		t.Logf("%s: woken %v after Redisson's publish", n.lock, time.Since(released).Round(10*time.Microsecond))
		if ttl := redissonAcquire(t, s, n.lock, theirs); ttl <= 0 {
			t.Errorf("Redisson's acquire of our lock returned %d, want the time left", ttl)
		}
		// Redisson's waiter subscribes and takes it after our message.
		heard := listen(t, s, n.channel)
		harness.Expect(t, waiter, ":1\r\n", "UNLOCK", n.lock)
		expectHeard(t, heard, n.channel+" 0")
		if ttl := redissonAcquire(t, s, n.lock, theirs); ttl != -9 {
			t.Errorf("Redisson's acquire of a free lock returned %d", ttl)
		}
		redissonRelease(t, s, n.lock, n.channel, theirs)
	}
	// Redisson's lock that nobody renews and nobody publishes: its end is noticed by its time left.
	redissonAcquire(t, s, "dead", theirs)
	s.Do(t, "PEXPIRE", "dead", 300)
	harness.Expect(t, waiter, "+OK\r\n", "LOCK", "dead", "BLOCK", "60000")
}

func listeners(t testing.TB, s *testredis.Server, channel string) int64 {
	t.Helper()
	got, err := redis.Values(s.Do(t, "PUBSUB", "NUMSUB", channel), nil)
	if err != nil {
		t.Fatal(err)
	}
	return got[1].(int64)
}

// redissonAcquire follows RLock's acquire step by step; it returns the time left of another's lock, or -9 when taken.
func redissonAcquire(t testing.TB, s *testredis.Server, name, owner string) int64 {
	t.Helper()
	absent := s.Do(t, "EXISTS", name) == int64(0)
	if absent || s.Do(t, "HEXISTS", name, owner) == int64(1) {
		s.Do(t, "HINCRBY", name, owner, 1)
		s.Do(t, "PEXPIRE", name, 30000)
		return -9
	}
	return pttl(t, s, name)
}

// redissonRelease follows RLock's unlock of the last hold.
func redissonRelease(t testing.TB, s *testredis.Server, name, channel, owner string) {
	t.Helper()
	if left := s.Do(t, "HINCRBY", name, owner, -1); left != int64(0) {
		t.Fatalf("Redisson's owner still has %v holds", left)
	}
	s.Do(t, "DEL", name)
	s.Do(t, "PUBLISH", channel, "0")
	s.Do(t, "SET", "redisson_unlock_latch:{x}:0123456789abcdef0123456789abcdef", "1", "PX", 100)
}
