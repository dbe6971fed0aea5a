package session

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestRedisClosesOneClientForItsReplies: where Redis bounds what it holds of a client's replies, only the client with too many is closed.
func TestRedisClosesOneClientForItsReplies(t *testing.T) {
	t.Parallel()
	const limit = "normal 1048576 0 0"
	t.Run("one Redis", func(t *testing.T) {
		t.Parallel()
		_, p := startBoth(t, nil, "--client-output-buffer-limit", limit)
		closesOneClient(t, p, rounds(5, 2))
	})
	t.Run("a cluster", func(t *testing.T) {
		t.Parallel()
		redis := testredis.StartCluster(t, 2, 0)
		for _, s := range redis.Servers {
			s.Do(t, "CONFIG", "SET", "client-output-buffer-limit", limit)
		}
		closesOneClient(t, startProxyOf(t, redis, nil), 1) // which tries reads again for some seconds
	})
}

func closesOneClient(t *testing.T, p *proxy, rounds int) {
	eventually(t, "the limits are learned", p.srv.up.common.Limited.Load)
	const pipelined = 100
	value := strings.Repeat("x", 512<<10)
	setup := dialWire(t, p.addr)
	for range 32 {
		setup.do("APPEND", "big", value)
		setup.do("RPUSH", "list", value)
	}
	var over atomic.Bool
	done := make(chan struct{})
	go func() { // another client, which is always in the middle of a pipeline
		defer close(done)
		w := dialWire(t, p.addr)
		for !over.Load() {
			w.raw([]byte(strings.Repeat("GET small\r\nEVAL 'return 1' 0\r\n", pipelined)))
			for range pipelined {
				if got := w.frame() + w.frame(); got != "$-1\r\n:1\r\n" {
					t.Errorf("another client got %q", got)
					return
				}
			}
		}
	}()
	for range rounds {
		for _, command := range []string{"GET big", "LRANGE list 0 -1", "EVAL 'return redis.call(\"GET\", KEYS[1])' 1 big"} {
			w := dialWire(t, p.addr)
			w.raw([]byte("GET small\r\n" + command + "\r\n"))
			w.want("$-1\r\n")
			if got := w.frame(); got != "<end>" {
				t.Errorf("%s: %d bytes", command, len(got))
			}
		}
	}
	over.Store(true)
	<-done
}
