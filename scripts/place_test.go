package scripts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestPlaceBehindRedisson: the score of an owner that comes to a fair queue is higher by what Redisson's waiters before it would wait, also when
// Redisson has taken dead waiters of lockproxy out, and left their tickets. Behind lockproxy's own waiters it is not.
func TestPlaceBehindRedisson(t *testing.T) {
	s := testredis.Start(t)
	const timeouts, tickets, fairWait = "redisson_lock_timeout:{k}", "lockproxy_fair:{k}", 300000
	enter := func(owner string) (left int64) {
		t.Helper()
		run(t, s, scripts.Acquire, plain("k"), owner, 1, 60000, soon, "", 0, "PUBLISH")
		score, err := redis.Int64(s.Do(t, "ZSCORE", timeouts, owner), nil)
		if err != nil {
			t.Fatal(owner, err)
		}
		return score - time.Now().UnixMilli()
	}
	for _, left := range []int{0, 1, 5} {
		for redissons := range 3 {
			s.Do(t, "FLUSHALL")
			s.Do(t, "HSET", "k", "you", 1)
			s.Do(t, "PEXPIRE", "k", 60000)
			for i := range redissons {
				s.Do(t, "RPUSH", "redisson_lock_queue:{k}", fmt.Sprint("r", i))
				s.Do(t, "ZADD", timeouts, time.Now().UnixMilli()+60000+int64(i+1)*fairWait, fmt.Sprint("r", i))
			}
			for i := range left {
				s.Do(t, "HSET", tickets, "", 5, fmt.Sprint("dead", i), "5:0")
			}
			for _, owner := range []string{"a", "b", "c"} {
				want := int64(10000 + redissons*fairWait)
				if got := enter(owner); got > want+5000 || got < want-5000 {
					t.Errorf("%s, behind %d of Redisson, %d tickets left: %d ms, want %d", owner, redissons, left, got, want)
				}
			}
		}
	}
}
