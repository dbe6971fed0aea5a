package clients

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// library is a Redis client library, used through its generic call.
type library struct {
	do    func(ctx context.Context, args ...string) (any, error) // nil, nil for a null reply
	named bool                                                   // it names itself with CLIENT SETINFO
}

// locks takes and gives back locks as an application would.
func (l library) locks(t *testing.T) {
	t.Run("plain", l.lockAndUnlock)
	t.Run("pooled", l.lockWithOwner)
	t.Run("fence", l.lockWithFence)
}

func (l library) must(t *testing.T, want any, args ...string) {
	t.Helper()
	got, err := l.do(context.Background(), args...)
	if err != nil {
		got = "-" + err.Error()
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q: %v, want %v", args, got, want)
	}
}

// lockAndUnlock is for a connection of one's own: the client must have only one.
func (l library) lockAndUnlock(t *testing.T) {
	l.must(t, "OK", "LOCK", "plain")
	_, err := l.do(context.Background(), "LOCK", "plain")
	if l.named {
		if err == nil || !strings.Contains(err.Error(), "OWNERREQUIRED") {
			t.Errorf("a second LOCK on a connection that may come from a pool: %v", err)
		}
	} else {
		if err != nil {
			t.Errorf("re-entry: %v", err)
		}
		l.must(t, 0, "UNLOCK", "plain")
	}
	l.must(t, 1, "UNLOCK", "plain")
	l.must(t, "OK", "LOCK", "plain", "SELF")
	l.must(t, "OK", "LOCK", "plain", "SELF")
	l.must(t, 0, "UNLOCK", "plain")
	l.must(t, 1, "UNLOCK", "plain")
	_, err = l.do(context.Background(), "UNLOCK", "plain")
	if err == nil || !strings.Contains(err.Error(), "NOTHELD") || l.named != strings.Contains(err.Error(), "OWNER <id>") {
		t.Errorf("UNLOCK of what is not held: %v", err)
	}
}

// lockWithOwner is the way of docs/CLIENTS.md for pools: a fresh owner for each critical section.
func (l library) lockWithOwner(t *testing.T) {
	l.must(t, "OK", "SET", "counter", "0")
	const workers, each = 16, 10
	var failed atomic.Int64
	began := time.Now()
	harness.Together(workers, func(worker int) {
		for i := range each {
			if err := l.critical(fmt.Sprintf("owner-%d-%d", worker, i)); err != nil {
				t.Error(err)
				failed.Add(1)
				return
			}
		}
	})
	l.must(t, workers*each, "GET", "counter")
	t.Logf("%d critical sections by %d goroutines in %v", workers*each, workers, time.Since(began).Round(time.Millisecond))
	l.must(t, "OK", "LOCK", "held", "OWNER", "one", "PX", "60000")
	l.must(t, nil, "LOCK", "held", "OWNER", "two", "EX", "30")
	l.must(t, nil, "LOCK", "held", "OWNER", "two", "EX", "30", "BLOCK", "50")
	l.must(t, "OK", "LOCK", "held", "OWNER", "one", "PX", "60000")
	l.must(t, 1, "UNLOCK", "held", "OWNER", "one")
	l.must(t, "OK", "LOCK", "held", "OWNER", "two", "EX", "30", "BLOCK", "30000")
	l.must(t, 1, "UNLOCK", "held", "OWNER", "two")
}

// critical adds one to the counter in two steps, which only a lock makes safe.
func (l library) critical(owner string) error {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	for got := any(nil); got == nil; {
		var err error
		if got, err = l.do(ctx, "LOCK", "section", "OWNER", owner, "EX", "30", "BLOCK", "1000"); err != nil {
			return err
		}
	}
	n, err := l.do(ctx, "GET", "counter")
	if err != nil {
		return err
	}
	var count int
	if _, err := fmt.Sscan(fmt.Sprint(n), &count); err != nil {
		return err
	}
	if _, err := l.do(ctx, "SET", "counter", fmt.Sprint(count+1)); err != nil {
		return err
	}
	_, err = l.do(ctx, "UNLOCK", "section", "OWNER", owner)
	return err
}

func (l library) lockWithFence(t *testing.T) {
	var last int64
	for range 3 {
		token, err := l.do(context.Background(), "LOCK", "fenced", "OWNER", "me", "EX", "30", "FENCE")
		n, isInt := token.(int64)
		if err != nil || !isInt || n <= last {
			t.Fatalf("token %v after %d: %v", token, last, err)
		}
		last = n
		l.must(t, 1, "UNLOCK", "fenced", "OWNER", "me")
	}
}

// givenUp checks what is left of a wait whose client stopped reading: nobody waits, and the lock can be had at once when
// its holder gives it back.
func givenUp(t *testing.T, p *harness.Proxy, holder *harness.Wire, key string) {
	t.Helper()
	harness.Eventually(t, "the wait has ended", func() bool {
		return strings.Contains(holder.Do("INFO", "lockproxy"), "lockproxy_locks_waiting:0\r\n")
	})
	if got := holder.Do("UNLOCK", key); got != ":1\r\n" {
		t.Errorf("UNLOCK: %q", got)
	}
	if got := harness.Dial(t, p.Addr()).Do("LOCK", key); got != "+OK\r\n" {
		t.Errorf("LOCK after a wait was given up: %q", got)
	}
}

func startInterop(t *testing.T) (*testredis.Server, *harness.Proxy) {
	t.Helper()
	redis := testredis.Start(t)
	return redis, harness.StartProxy(t, redis.URL())
}

// sizes of the values the libraries are tried with.
var sizes = []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1<<20 + 1, 5 << 20}
