package main

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// caller connects again when its connection has ended, as every library does, and sends its command again then.
type caller struct {
	addr string
	conn redis.Conn
}

func (c *caller) do(end time.Time, name string, args ...any) (got any, err error) {
	for {
		if c.conn == nil {
			if c.conn, err = redis.Dial("tcp", c.addr); err != nil {
				c.conn = nil
			}
		}
		if c.conn != nil {
			if got, err = c.conn.Do(name, args...); err == nil || c.conn.Err() == nil {
				return got, err
			}
			c.conn.Close()
			c.conn = nil
		}
		if time.Now().After(end) {
			return nil, err
		}
	}
}

// A new process serves at the same address while the old one drains: clients that connect again get all their replies, no lock is
// held twice, and who holds one keeps it until it unlocks.
func TestUpgradeWithReusePort(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	addr := freeAddr(t)
	args := []string{"--upstream", server.URL(), "--listen", addr, "--reuse-port", "yes", "--drain-timeout", "1m"}
	old := start(t, args...)
	holder := old.dial("tcp", addr)
	expect(t, holder, "OK", "LOCK", "kept")
	stop := make(chan struct{})
	var work sync.WaitGroup
	var inside sync.Mutex // TryLock fails when two have the lock
	for i := range 20 {
		work.Go(func() {
			c := caller{addr: addr}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				end := time.Now().Add(patience)
				if got, err := redis.String(c.do(end, "ECHO", n)); err != nil || got != fmt.Sprint(n) {
					t.Errorf("client %d: ECHO %d is answered %q, %v", i, n, got, err)
					return
				}
				if got, err := c.do(end, "LOCK", "shared", "BLOCK", 1000); err != nil || got == nil {
					continue // DRAINING, or somebody else has it
				}
				if !inside.TryLock() {
					t.Error("a lock is held twice")
					return
				}
				if _, err := c.conn.Do("PING"); err != nil { // a holder keeps its connection
					t.Errorf("client %d: PING of a holder: %v", i, err)
				}
				inside.Unlock()
				if got, err := redis.Int(c.conn.Do("UNLOCK", "shared")); err != nil || got != 1 {
					t.Errorf("client %d: UNLOCK is answered %d, %v", i, got, err)
					return
				}
			}
		})
	}
	for range 2 {
		next := start(t, args...)
		next.awaitLog("serving")
		old.cmd.Process.Signal(syscall.SIGTERM)
		old.awaitLog("draining")
		if holder != nil {
			expect(t, holder, int64(1), "RENEW", "kept")
			expect(t, holder, int64(1), "UNLOCK", "kept")
			holder = nil
		}
		if code := old.exit(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		old = next
	}
	close(stop)
	work.Wait()
}
