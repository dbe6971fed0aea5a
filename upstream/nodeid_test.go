package upstream

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A connection that leads to another server than the node that is meant carries nothing, whatever it is for: commands of
// clients, scripts of locks, wake-ups, topology.
func TestAnotherNodeIsNotUsed(t *testing.T) {
	t.Parallel()
	node, alone := testredis.Start(t, "--cluster-enabled", "yes"), testredis.Start(t)
	id, err := redis.String(node.Do(t, "CLUSTER", "MYID"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*testredis.Server{node, alone} {
		s.Do(t, "ACL", "SETUSER", "blind", "on", ">pw", "~*", "&*", "+@all", "-cluster")
	}
	other := strings.Repeat("0", nodeIDLength)
	for _, c := range []struct {
		name    string
		s       *testredis.Server
		id      string
		account Identity
		refused bool
	}{
		{"the node itself", node, id, Identity{Proto: 2}, false},
		{"another node", node, other, Identity{Proto: 2}, true},
		{"another node, RESP3", node, other, Identity{Proto: 3}, true},
		{"another node, a user who may not ask", node, other, Identity{User: "blind", Password: "pw", Proto: 2}, false},
		{"a server that is in no cluster", alone, other, Identity{Proto: 2}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := Target{Network: "tcp", Addr: c.s.Addr(), NodeID: c.id, User: c.account.User, Password: c.account.Password}
			n := newNode(t, target, NodeOptions{})
			ways := map[string]func() error{
				"shared": func() error {
					p, err := n.Open(context.Background(), c.account)
					if err == nil {
						p.Release()
					}
					return err
				},
				"dedicated": func() error {
					p, err := n.Dedicate(context.Background(), c.account)
					if err == nil {
						p.Close()
					}
					return err
				},
				"rueidis": func() error { return run(controlClientOf(t, newControl(t, target), 0), "PING").Error() },
				"subscriptions": func() error {
					client, err := newControl(t, target).Subscriber()
					if err != nil {
						t.Fatal(err)
					}
					return run(client, "PING").Error()
				},
				"script": func() error {
					_, err := newControl(t, target).Ints(0, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "return 1", nil, nil, false)
					return err
				},
			}
			for way, try := range ways {
				err := try()
				var another *AnotherNodeError
				var unsent *NotSentError
				told := errors.As(err, &another) || err != nil && strings.Contains(err.Error(), "another server answers")
				if told != c.refused || c.refused && !errors.As(err, &unsent) && !NotSent(err) {
					t.Errorf("%s: %v", way, err)
				}
			}
		})
	}
}
