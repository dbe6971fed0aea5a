package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// able waits until an engine says why locks cannot be had; "": they can.
func able(t *testing.T, m *Manager, reason string) {
	t.Helper()
	var last error
	eventually(t, time.Minute, "locks can be had, or not for this reason: "+reason, func() bool {
		if _, last = m.Able(); last == nil {
			return reason == ""
		}
		return lockstore.Reason(last) == reason
	})
	if last != nil {
		t.Log(reason, ": ", last)
	}
}

// TestAbleSaysWhyNoLockCanBeHad: what keeps Redis from giving locks is noticed without a client's asking for one, and so is its end.
// Nothing of the trials is left in Redis.
func TestAbleSaysWhyNoLockCanBeHad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason      string
		begin, ends []any
	}{
		{"noperm", []any{"ACL", "SETUSER", "default", "-publish"}, []any{"ACL", "SETUSER", "default", "+publish"}},
		{"oom", []any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}},
		{"readonly", []any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}},
		{"noreplicas", []any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			s := testredis.Start(t)
			m := engine(t, s.URL(), ManagerOptions{})
			able(t, m, "")
			s.Do(t, c.begin...)
			able(t, m, c.reason)
			s.Do(t, c.ends...)
			able(t, m, "")
			if left := s.Do(t, "DBSIZE").(int64); left != 0 {
				t.Errorf("%d keys are left: %q", left, s.Do(t, "KEYS", "*"))
			}
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		s := testredis.Start(t)
		m := engine(t, s.URL(), ManagerOptions{})
		able(t, m, "")
		began := time.Now()
		s.Stop()
		able(t, m, "unreachable")
		t.Log("a Redis that hangs is noticed after ", time.Since(began))
		s.Cont()
		able(t, m, "")
	})
}

// TestAbleOnACluster: each master has to give locks. The error names the one that does not.
func TestAbleOnACluster(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	m := clusterEngine(t, tc, ManagerOptions{})
	able(t, m, "")
	full := tc.Servers[1]
	full.Do(t, "CONFIG", "SET", "maxmemory", "1")
	able(t, m, "oom")
	where, err := m.Able()
	if !strings.Contains(err.Error(), "1 of 3") || !strings.Contains(err.Error(), full.Addr()) {
		t.Error(err)
	}
	for _, s := range tc.Servers {
		if err, keeps := lockstore.At(where, s.Addr()); !keeps || (err != nil) != (s == full) {
			t.Errorf("%s: %v, %v", s.Addr(), err, keeps)
		}
	}
	full.Do(t, "CONFIG", "SET", "maxmemory", "0")
	able(t, m, "")
}

// TestAbleOnAQuorum: a majority of the nodes has to give locks.
func TestAbleOnAQuorum(t *testing.T) {
	t.Parallel()
	nodes := []*testredis.Server{testredis.Start(t), testredis.Start(t), testredis.Start(t)}
	var addrs []string
	for _, s := range nodes {
		addrs = append(addrs, s.Addr())
	}
	m := quorumEngine(t, addrs, 0, ManagerOptions{})
	able(t, m, "")
	troubled := func() (n int) {
		where, _ := m.Able()
		for _, a := range where {
			if a.Err != nil {
				n++
			}
		}
		return n
	}
	nodes[0].Do(t, "CONFIG", "SET", "maxmemory", "1")
	eventually(t, time.Minute, "the full node is noticed", func() bool { return troubled() == 1 })
	if _, err := m.Able(); err != nil {
		t.Errorf("two of three nodes give locks: %v", err)
	}
	nodes[1].Do(t, "CONFIG", "SET", "maxmemory", "1")
	able(t, m, "oom")
	nodes[0].Do(t, "CONFIG", "SET", "maxmemory", "0")
	able(t, m, "")
	for _, s := range nodes {
		if left := s.Do(t, "DBSIZE").(int64); left != 0 {
			t.Errorf("%d keys are left: %q", left, s.Do(t, "KEYS", "*"))
		}
	}
}
