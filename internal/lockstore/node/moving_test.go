package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// slotServer is a server of the slot that moves, with a connection.
type slotServer struct {
	*testredis.Server
	conn redis.Conn
}

// do sends a command to a node that may not have its keys by right.
func (n slotServer) do(t *testing.T, words ...string) (any, error) {
	t.Helper()
	if err := n.conn.Send("ASKING"); err != nil {
		t.Fatal(err)
	}
	return n.conn.Do(words[0], args(words[1:])...) // reads the reply to ASKING, too
}

// contents is all that a node has, with the time left in hours: a busy machine may take minutes for this test.
func (n slotServer) contents(t *testing.T) []string {
	t.Helper()
	keys, err := redis.Strings(n.do(t, "KEYS", "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for _, word := range []string{"DUMP", "PTTL"} {
			if err := errors.Join(n.conn.Send("ASKING"), n.conn.Send(word, key)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(keys) == 0 {
		return nil
	}
	replies, err := redis.Values(n.conn.Do("")) // to all of these
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		dump, err := redis.String(replies[4*i+1], nil)
		ttl, also := redis.Int64(replies[4*i+3], nil)
		if err := errors.Join(err, also); err != nil {
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
	slot := cluster.Slot([]byte(key))
	from, to := slotServer{Server: tc.Servers[0]}, slotServer{Server: tc.Servers[1]}
	if at, err := tc.Owner(slot); err != nil {
		t.Fatal(err)
	} else if from.Server != at {
		from, to = to, from
	}
	from.conn, to.conn = from.Dial(t), to.Dial(t)
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
			half += parted(t, tc, name, set, from, to, slot, guarded)
		}
	}
	t.Logf("%d scripts would have been stopped half-way without the guard", half)
	if half == 0 {
		t.Error("the guard guards against nothing")
	}
}

// parted runs all scripts over all ways to part the keys that set makes, and counts those stopped in the middle.
func parted(t *testing.T, tc *testredis.Cluster, name string, set [][]string, from, to slotServer, slot int, guarded bool) (half int) {
	must := func(n slotServer, words ...string) {
		t.Helper()
		if _, err := n.do(t, words...); err != nil {
			t.Fatal(words, err)
		}
	}
	for mask := range 1 << len(set) {
		fresh := true // the nodes are to be made ready
		var before [2][]string
		for _, c := range allCalls() {
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

func runGuarded(t *testing.T, at slotServer, c Call, behind bool) error {
	if behind && guards(c) {
		c = c.Guarded()
	}
	_, err := at.do(t, slices.Concat([]string{"EVAL", c.Script.Source, fmt.Sprint(len(c.Keys))}, c.Keys, c.Args)...)
	if behind && guards(c) && err == nil {
		t.Errorf("%s was run", c.Script.Name)
	}
	if err != nil && behind && guards(c) && !strings.HasPrefix(err.Error(), "TRYAGAIN ") && !strings.HasPrefix(err.Error(), "ASK ") {
		t.Errorf("%s: %v", c.Script.Name, err)
	}
	return err
}

// guards says whether a call has a key of its own that makes Redis refuse it.
func guards(c Call) bool { return len(c.Guarded().Keys) > len(c.Keys) }

// allCalls are calls of all scripts that change something, as they are sent.
func allCalls() (all []Call) {
	const key, soon = "moving", "99999999999999999"
	steps := Steps{Publish: "BOTH"}
	for _, k := range lockstore.Kinds {
		id := lockstore.ID{Key: key, Owner: "a", Kind: k}
		for _, named := range []bool{false, true} {
			counts, more, expiry := lockstore.Counts{}, lockstore.Counts{}, (*lockstore.Expiry)(nil)
			if named {
				expiry = lockstore.ExpiryAt(2)
			} else {
				counts, more = counts.With(k, 1), counts.With(k, 2)
			}
			first := lockstore.Acquire{ID: id, Counts: counts, Lease: 30000, Fence: k != lockstore.Read}
			again := lockstore.Acquire{ID: id, Counts: more, Lease: 1000, Queues: k == lockstore.Plain}
			one := lockstore.Release{ID: id, Named: named, Counts: counts}
			every := lockstore.Release{ID: id, Named: named, Whole: !named}
			unasked := lockstore.Release{ID: id, Named: named, Expiry: expiry}
			handed := every
			handed.Next = &lockstore.Handoff{Line: id.Line(), Asks: []*lockstore.Acquire{&first}}
			all = append(all, steps.Acquire(&first, soon), steps.Acquire(&again, soon), steps.Release(&one, soon), steps.Release(&every, soon),
				steps.Release(&unasked, soon), steps.Release(&handed, soon),
				Extend(lockstore.Extension{ID: id, Counts: counts, Lease: 30000}, false, soon),
				Extend(lockstore.Extension{ID: id, Counts: counts, Lease: 30000}, true, soon),
				Extend(lockstore.Extension{ID: id, Counts: counts, Lease: 30000, Expiry: expiry}, false, soon))
		}
		held := lockstore.Renewed{ID: id, Counts: lockstore.Counts{}.With(k, 1), Lease: 700_000}
		all = append(all, Renew(lockstore.Renewal{Kind: held.ID.Hold().Kind, Holds: []lockstore.Renewed{held}}, soon))
	}
	return append(all,
		steps.Release(&lockstore.Release{ID: lockstore.ID{Key: key}}, soon), steps.Release(&lockstore.Release{ID: lockstore.ID{Key: key, Kind: lockstore.Read}, Whole: true}, soon),
		steps.Refresh(lockstore.Queue{Key: key, Positions: []lockstore.Position{{ID: lockstore.ID{Key: key, Owner: "f"}, Place: 7}}}, soon),
		steps.Leave(lockstore.ID{Key: key, Owner: "f"}, soon),
		steps.Vacant([]lockstore.ID{{Key: key, Owner: "a"}, {Key: key, Owner: "a", Kind: lockstore.Write}}))
}
