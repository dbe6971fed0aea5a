package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// A service account with what docs/OPERATIONS.md lists for the nodes can do all of it.
func TestQuorumServiceAccount(t *testing.T) {
	t.Parallel()
	var o quorum.Options
	o.NodeTimeout = 2 * time.Second // wide: the machine may be busy
	var servers []*testredis.Server
	for range 3 {
		s := testredis.Start(t)
		with := []any{"ACL", "SETUSER", "svc", "on", ">pw", "resetchannels", "~app:*", "&redisson_*", "+info"}
		for _, rule := range node.Rules(node.PubSubBoth, false, true) {
			with = append(with, rule)
		}
		s.Do(t, with...)
		c := upstream.NewControl(upstream.Target{Network: "tcp", Addr: s.Addr(), User: "svc", Password: "pw", MinUptime: time.Millisecond},
			upstream.ControlOptions{Logger: testLog(), DialTimeout: 10 * time.Second})
		t.Cleanup(c.Close)
		o.Nodes = append(o.Nodes, quorum.Node{Name: s.Addr(), Control: c})
		servers = append(servers, s)
	}
	m := atWork(t, New(quorum.Open(o), Options{Logger: testLog()}), func() {})
	a, _ := client(m)
	b, _ := client(m)
	eventually(t, 30*time.Second, "the nodes count", func() bool {
		_, err := a.Lock(context.Background(), Request{Key: "app:1", Fence: true})
		return err == nil
	})
	if err := a.Renew(context.Background(), RenewRequest{Key: "app:1"}); err != nil {
		t.Error(err)
	}
	got := locking(b, Request{Key: "app:1", Blocks: true, Owner: "me"})
	eventually(t, 30*time.Second, "waits", func() bool { return m.Stats().Waiting == 1 })
	mustUnlock(t, a, UnlockRequest{Key: "app:1"}, true)
	granted(t, got, "who waits")
	mustLock(t, a, Request{Key: "app:rw", Kind: Write, Fence: true})
	mustLock(t, a, Request{Key: "app:rw", Kind: Read})
	if _, err := m.Info(context.Background(), 0, "app:rw"); err != nil {
		t.Error(err)
	}
	if freed, err := b.Unlock(context.Background(), UnlockRequest{Key: "app:rw", Force: true}); !freed || err != nil {
		t.Error(freed, err)
	}
	for _, s := range servers {
		if denied, err := redis.Values(s.Do(t, "ACL", "LOG"), nil); err != nil || len(denied) > 0 {
			t.Errorf("%v %s", err, denied)
		}
	}
	_, err := b.Lock(context.Background(), Request{Key: "other:1"})
	var refusal *upstream.ReplyError
	if !errors.As(err, &refusal) || refusal.Line[:7] != "NOPERM " {
		t.Error(err)
	}
}
