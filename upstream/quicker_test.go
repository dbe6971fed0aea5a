package upstream

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A Redis that makes no further connection costs no time: that for commands does.
func TestQuickerConnectionsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	redis := server.Dial(t)
	limit := func(clients int) {
		t.Helper()
		if _, err := redis.Do("CONFIG", "SET", "maxclients", clients); err != nil {
			t.Fatal(err)
		}
	}
	n := newNode(t, targetOf(t, server), NodeOptions{})
	commands := open(t, n, Identity{Proto: 2})
	limit(1)
	began := time.Now()
	const often = 50
	for range often {
		p, err := n.Open(context.Background(), Identity{Proto: 2, For: Writes})
		if err != nil || p != commands {
			t.Fatalf("%v, %v", p, err)
		}
		p.Release()
	}
	if took := time.Since(began); took > often*quickerFor/4 {
		t.Errorf("it took %v", took)
	}
	limit(1000)
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		p, err := n.Open(context.Background(), Identity{Proto: 2, For: Writes})
		if err != nil {
			t.Fatal(err)
		}
		if p != commands {
			return
		}
		if p.Release(); time.Since(start) > time.Minute {
			t.Fatal("there never is a connection for writes")
		}
	}
}
