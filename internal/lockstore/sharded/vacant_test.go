package sharded

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Nobody is told while the lock is held: neither when somebody else has it, nor when its own owner has it again.
func TestVacantOnlyWhenFree(t *testing.T) {
	s := testredis.Start(t)
	d := at(t, s.URL())
	listen := redis.PubSubConn{Conn: s.Dial(t)}
	if err := listen.PSubscribe("*{others}*", "*{own}*", "*{endless}*", "*{text}*", "*{reads}*"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		listen.Receive()
	}
	id := func(key, owner string, k lockstore.Kind) lockstore.ID {
		return lockstore.ID{Key: key, Owner: owner, Kind: k}
	}
	s.Do(t, "HSET", "others", "somebody", "1")
	s.Do(t, "PEXPIRE", "others", 60000)
	s.Do(t, "HSET", "own", "me", "1")
	s.Do(t, "PEXPIRE", "own", 60000)
	s.Do(t, "HSET", "endless", "me", "1")
	s.Do(t, "SET", "text", "somebody's")
	s.Do(t, "HSET", "reads", "mode", "read", "other", "1")
	s.Do(t, "PEXPIRE", "reads", 60000)
	ids := []lockstore.ID{
		id("others", "me", lockstore.Plain), id("own", "me", lockstore.Plain), id("endless", "me", lockstore.Plain), id("text", "me", lockstore.Plain), id("reads", "me", lockstore.Read),
	}
	out, err := d.do(context.Background(), vacate(ids))
	if err != nil || out[1] < 50000 || out[1] > 60000 {
		t.Fatal(out, err)
	}
	if out[1] = 0; fmt.Sprint(out) != "[-1 0 -1 -1 -1]" {
		t.Error(out)
	}
	// Of a lock that ends later than its owner's hold would have, nobody is told when it does: it was taken anew.
	d.vacant.add(&vacancy{id: lockstore.ID{Key: "own", Owner: "me"}, at: time.Now(), until: time.Now().Add(time.Second)})
	eventually(t, "it is dropped", func() bool {
		d.vacant.mu.Lock()
		defer d.vacant.mu.Unlock()
		return d.vacant.next.Len() == 0
	})
	if got, ok := listen.ReceiveWithTimeout(100 * time.Millisecond).(redis.Message); ok {
		t.Errorf("told: %s", got.Channel)
	}
}
