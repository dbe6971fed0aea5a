package lock

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

// slotServer is a server of the slot that moves, with a connection.
type slotServer struct {
	*testredis.Server
	conn redis.Conn
}

// do sends a command to a node that may not have its keys by right.
func (n slotServer) do(t *testing.T, words ...string) (any, error) {
	t.Helper()
	if _, err := n.conn.Do("ASKING"); err != nil {
		t.Fatal(err)
	}
	return n.conn.Do(words[0], args(words[1:])...)
}

// contents is all that a node has, with the time left in hours: a busy machine may take minutes for this test.
func (n slotServer) contents(t *testing.T) []string {
	t.Helper()
	keys, err := redis.Strings(n.do(t, "KEYS", "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	for i, key := range keys {
		dump, err := redis.String(n.do(t, "DUMP", key))
		if err != nil {
			t.Fatal(err)
		}
		ttl, err := redis.Int64(n.do(t, "PTTL", key))
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = fmt.Sprintf("%s %d %x", key, (ttl+1800000)/3600000, dump)
	}
	return keys
}

// TestScriptsInAMovingSlot runs every script that changes something in a slot of which some keys are on one node and some on
// another, in every way to part them. A script that Redis refuses has changed nothing anywhere; and without the guard it would.
func TestScriptsInAMovingSlot(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 2, 0)
	const key = "moving"
	slot := slotOf(key)
	from, to := slotServer{Server: tc.Servers[0]}, slotServer{Server: tc.Servers[1]}
	if from.Server != owner(t, tc, key) {
		from, to = to, from
	}
	from.conn, to.conn = from.Dial(t), to.Dial(t)
	m := &Manager{opts: Options{}.withDefaults(), holds: map[lockstore.ID]*hold{}}
	m.store = newDirect(m, &sharded{})
	half := 0
	for name, set := range map[string][][]string{
		"plain": {{"HSET", key, "a", "1"}},
		"free":  {},
		"fair": {
			{"RPUSH", lockstore.QueueKey(key), "f"}, {"ZADD", lockstore.Prefixed("redisson_lock_timeout", key), "99999999999999", "f"},
			{"HSET", lockstore.Prefixed("lockproxy_fair", key), "f", "7:99999999999999"}, {"HSET", key, "a", "1"},
		},
		"dead": {{"RPUSH", lockstore.QueueKey(key), "f"}, {"ZADD", lockstore.Prefixed("redisson_lock_timeout", key), "1", "f"}},
		"read": {{"HSET", key, "mode", "read", "a", "2", "b", "1"}, {"SET", "{moving}:a:rwlock_timeout:1", "1"},
			{"SET", "{moving}:a:rwlock_timeout:2", "1"}, {"SET", "{moving}:b:rwlock_timeout:1", "1"}},
		"write": {{"HSET", key, "mode", "write", "a:write", "1", "a", "1"}, {"SET", "{moving}:a:rwlock_timeout:1", "1"}},
	} {
		for _, guarded := range []bool{true, false} {
			half += parted(t, tc, m, name, set, from, to, slot, guarded)
		}
	}
	t.Logf("%d scripts would have been stopped half-way without the guard", half)
	if half == 0 {
		t.Error("the guard guards against nothing")
	}
}

// parted runs all scripts over all ways to part the keys that set makes, and counts those stopped in the middle.
func parted(t *testing.T, tc *testredis.Cluster, m *Manager, name string, set [][]string, from, to slotServer, slot int, guarded bool) (half int) {
	must := func(n slotServer, words ...string) {
		t.Helper()
		if _, err := n.do(t, words...); err != nil {
			t.Fatal(words, err)
		}
	}
	for mask := range 1 << len(set) {
		fresh := true // the nodes are to be made ready
		var before [2][]string
		for _, c := range allCalls(m) {
			for _, at := range []slotServer{from, to} {
				if fresh {
					for _, n := range []slotServer{from, to} {
						must(n, "CLUSTER", "SETSLOT", fmt.Sprint(slot), "STABLE")
						must(n, "FLUSHALL")
					}
					for _, words := range set {
						must(from, words...)
						must(from, "PEXPIRE", words[1], "36000000")
					}
					if err := tc.BeginMove(slot, from.Server, to.Server); err != nil {
						t.Fatal(err)
					}
					for i, words := range set {
						if mask>>i&1 == 1 {
							must(from, "MIGRATE", "127.0.0.1", fmt.Sprint(to.Port()), words[1], "0", "5000")
						}
					}
					before = [2][]string{from.contents(t), to.contents(t)}
				}
				err := runGuarded(t, at, c, guarded)
				after := [2][]string{from.contents(t), to.contents(t)}
				fresh = !slices.Equal(before[0], after[0]) || !slices.Equal(before[1], after[1])
				if err == nil || !fresh {
					continue
				}
				if !guarded {
					t.Logf("%s, parted by %b: %s %v is stopped in the middle without the guard", name, mask, c.Script.Name, c.Args)
				}
				if half++; guarded {
					t.Errorf("%s, parted by %b: %s was stopped by %q and had changed\n%q to\n%q", name, mask, c.Script.Name, err, before, after)
				}
			}
		}
	}
	if guarded {
		return 0
	}
	return half
}

func args(words []string) (all []any) {
	for _, w := range words {
		all = append(all, w)
	}
	return all
}

func runGuarded(t *testing.T, at slotServer, c node.Call, behind bool) error {
	if behind && guarded(c) {
		c.Keys = append(slices.Clip(c.Keys), lockstore.GuardKey(c.Keys[0]))
	}
	_, err := at.do(t, slices.Concat([]string{"EVAL", c.Script.Source, fmt.Sprint(len(c.Keys))}, c.Keys, c.Args)...)
	if behind && guarded(c) && err == nil {
		t.Errorf("%s was run", c.Script.Name)
	}
	if err != nil && behind && guarded(c) && !strings.HasPrefix(err.Error(), "TRYAGAIN ") && !strings.HasPrefix(err.Error(), "ASK ") {
		t.Errorf("%s: %v", c.Script.Name, err)
	}
	return err
}

// allCalls are calls of all scripts that change something, as they are sent.
func allCalls(m *Manager) (all []node.Call) {
	const key, soon = "moving", "99999999999999999"
	c := &Client{m: m}
	for _, k := range []Kind{Plain, Read, Write} {
		for _, explicit := range []bool{false, true} {
			h := &hold{id: lockstore.ID{Key: key, Owner: "a", Kind: k}, explicit: explicit}
			for _, r := range []Request{{Key: key, Kind: k}, {Key: key, Kind: k, Fence: k != Read, Lease: 1000}} {
				a := c.newAcquire(h, r, nil)
				all = append(all, a.call(soon), brief(a.call(soon)))
			}
			one, every := c.newRelease(h, false).call(soon), c.newRelease(h, true).call(soon)
			all = append(all, one, every, brief(c.newRelease(h, false).call(soon)))
			for _, r := range []RenewRequest{{Key: key, Side: k}, {Key: key, Side: k, Lease: 700000}} {
				e := c.newExtension(h, r)
				e.Registration = "new"
				all = append(all, extendCall(e, soon))
			}
			b := &batch{batchKey: batchKey{kind: k, lease: 700000 * 1e6}, holds: []*hold{h}, marks: []string{""}}
			if explicit {
				b.marks[0] = "new"
			}
			all = append(all, renewCall(m.renewal(b), soon))
			off := &handoff{m: m, line: &line{key: h.id.Line()}, asks: []*acquire{c.newAcquire(h, Request{Key: key, Kind: k}, nil)}, waiters: []*waiter{{id: h.id}}}
			all = append(all, off.call(one, soon))
			for _, given := range []node.Call{one, every} {
				if short, is := off.pass(given, soon); is {
					all = append(all, short)
				}
			}
		}
	}
	all = append(all,
		node.Call{DB: 0, Script: scripts.Force, Keys: lockstore.PlainKeys(key), Args: []string{"BOTH", soon}},
		node.Call{DB: 0, Script: scripts.RWForce, Keys: []string{key, lockstore.Prefixed("redisson_rwlock", key)}, Args: []string{"BOTH", soon, "", lockstore.ReadPrefix(key)}},
		node.Call{DB: 0, Script: scripts.Refresh, Keys: lockstore.PlainKeys(key), Args: []string{soon, "BOTH", "1000", "f", "7"}},
		node.Call{DB: 0, Script: scripts.Leave, Keys: lockstore.PlainKeys(key), Args: []string{soon, "BOTH", "f"}},
		directOf(m).vacantCall([]*vacancy{{id: lockstore.ID{Key: key, Owner: "a"}}, {id: lockstore.ID{Key: key, Owner: "a", Kind: Write}}}))
	return all
}
