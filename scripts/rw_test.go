package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

const rwChannel = "redisson_rwlock:{k}"

// holdsOf is what the keys of an owner's read holds on k begin with.
func holdsOf(owner string) string { return "{k}:" + owner + ":rwlock_timeout" }

// step runs one of our scripts on k for an owner, as the verbs do; more are letters. What the short reply of a common case stands for is
// written out.
func step(t *testing.T, s *testredis.Server, op, owner string, lease int, more string) string {
	t.Helper()
	reply := stepAsIs(t, s, op, owner, lease, more)
	if strings.HasPrefix(reply, "[-6 ") { // the engine asks for a first hold then
		reply = stepAsIs(t, s, op, owner, lease, more+"N")
	}
	switch {
	case reply == "1" && strings.HasSuffix(op, "LOCK"):
		return fmt.Sprintf("[1 1 %d 0 1]", lease)
	case reply == "1" && strings.HasPrefix(op, "UNLOCK"):
		return "[1 0]"
	}
	return reply
}

func stepAsIs(t *testing.T, s *testredis.Server, op, owner string, lease int, more string) string {
	t.Helper()
	read, write := []string{"k", holdsOf(owner)}, []string{"k"}
	writer := owner + ":write"
	switch op {
	case "RLOCK":
		return run(t, s, scripts.ReadAcquire, read, lease, owner, soon, more, "", 0, writer, "{k}")
	case "WLOCK":
		return run(t, s, scripts.WriteAcquire, write, lease, writer, soon, more, "", 0, owner, "{k}")
	case "UNLOCK READ":
		return run(t, s, scripts.ReadRelease, append(read, rwChannel), owner, "PUBLISH", soon, more, "", "", "{k}")
	case "UNLOCK WRITE":
		return run(t, s, scripts.WriteRelease, append(write, rwChannel), writer, "PUBLISH", soon, more, "", owner, "{k}")
	case "RENEW READ":
		return run(t, s, scripts.ReadExtend, read, lease, owner, soon, more, "", "", writer, "{k}")
	case "RENEW WRITE":
		return run(t, s, scripts.WriteExtend, write, lease, writer, soon, more, "", "", owner, "{k}")
	case "FORCE READ", "FORCE WRITE", "FORCE ":
		return run(t, s, scripts.RWForce, []string{"k", rwChannel}, "PUBLISH", soon, strings.ToLower(op[6:]), "{k}")
	}
	t.Fatal(op)
	return ""
}

// record is everything that Redis holds: keys, values and hash fields in order, and how many ms each key has left.
func record(t *testing.T, s *testredis.Server) (state []string, left map[string]int64) {
	t.Helper()
	names, err := redis.Strings(s.Do(t, "KEYS", "*"), nil)
	if err != nil {
		t.Fatal(err)
	}
	left = map[string]int64{}
	for _, name := range names {
		left[name] = s.Do(t, "PTTL", name).(int64)
		if s.Do(t, "TYPE", name) == "hash" {
			all, _ := redis.Strings(s.Do(t, "HGETALL", name), nil)
			var pairs []string
			for i := 0; i < len(all); i += 2 {
				pairs = append(pairs, all[i]+"="+all[i+1])
			}
			slices.Sort(pairs)
			state = append(state, name+" "+strings.Join(pairs, " "))
			continue
		}
		value, _ := redis.String(s.Do(t, "GET", name), nil)
		state = append(state, name+" "+value)
	}
	slices.Sort(state)
	return state, left
}

func messages(t *testing.T, s *testredis.Server) func() []string {
	t.Helper()
	c := redis.PubSubConn{Conn: s.Dial(t)}
	if err := c.Subscribe(rwChannel, "sync"); err != nil {
		t.Fatal(err)
	}
	c.Receive()
	c.Receive()
	return func() (heard []string) {
		s.Do(t, "PUBLISH", "sync", "")
		for {
			m, ok := c.Receive().(redis.Message)
			if !ok || m.Channel == "sync" {
				return heard
			}
			heard = append(heard, string(m.Data))
		}
	}
}

// outcomeOf puts our scripts' answers into Redisson's words.
func outcomeOf(reply string) string {
	switch {
	case strings.HasPrefix(reply, "[1 0]"), reply == "1":
		return "1"
	case strings.HasPrefix(reply, "[-1 "), strings.HasPrefix(reply, "[0 0 "), strings.HasPrefix(reply, "[-5 "):
		return "nil"
	case strings.HasPrefix(reply, "[1 "):
		return "OK"
	default:
		return "0"
	}
}

// TestRWLeavesWhatRedissonLeaves does the same steps with our scripts and with Redisson's, and compares all that Redis then
// holds, byte for byte, the time left, and the messages. Where we mean to differ the step says so.
func TestRWLeavesWhatRedissonLeaves(t *testing.T) {
	type act struct {
		op, owner string
		lease     int
		differs   string // ttl: in the time the lock has left; answer; message: we publish, they do not; rest: they leave dead keys
	}
	R := func(owner string, lease int) act { return act{"RLOCK", owner, lease, ""} }
	W := func(owner string, lease int) act { return act{"WLOCK", owner, lease, ""} }
	r := func(owner, differs string) act { return act{"UNLOCK READ", owner, 30000, differs} }
	w := func(owner, differs string) act { return act{"UNLOCK WRITE", owner, 30000, differs} }
	for name, acts := range map[string][]act{
		"one reader":           {R("a", 30000), r("a", ""), r("a", "message")},
		"two readers":          {R("a", 30000), R("b", 30000), r("a", ""), R("a", 30000), r("b", ""), r("a", "")},
		"leases of readers":    {R("a", 9000), R("b", 60000), R("a", 5000), r("b", ""), r("a", ""), r("a", "")},
		"a longer lease goes":  {R("b", 9000), R("a", 60000), r("a", ""), r("b", "")},
		"a reader enters":      {R("a", 30000), R("a", 30000), R("a", 30000), r("a", ""), r("a", ""), r("a", "")},
		"the last lease stays": {R("a", 5000), R("a", 60000), r("a", "ttl"), r("a", "")},
		"one writer":           {W("a", 30000), w("a", ""), w("a", "message")},
		"a writer enters":      {W("a", 20000), W("a", 20000), w("a", "ttl"), w("a", "")},
		"refused":              {W("a", 30000), W("b", 30000), R("b", 30000), r("b", ""), w("b", ""), r("a", ""), w("a", "")},
		"readers refuse":       {R("a", 30000), W("b", 30000), W("a", 30000), w("a", ""), w("b", ""), r("b", ""), r("a", "")},
		"W R r w":              {W("a", 30000), R("a", 30000), r("a", ""), w("a", "")},
		"W R w r":              {W("a", 30000), R("a", 30000), w("a", "message"), R("b", 30000), W("a", 30000), r("a", ""), r("b", "")},
		"W R R r":              {W("a", 600000), R("a", 5000), R("a", 5000), r("a", "ttl"), r("a", "ttl"), w("a", "")},
		"W long, R short":      {W("a", 600000), R("a", 5000), w("a", "ttl message"), r("a", "")},
		"W R R w r r":          {W("a", 30000), R("a", 30000), R("a", 30000), w("a", "message"), r("a", ""), r("a", "")},
		"force a reader":       {R("a", 30000), R("b", 30000), {"FORCE WRITE", "a", 0, ""}, {"FORCE READ", "a", 0, "rest"}},
		"force a writer":       {W("a", 30000), R("a", 30000), {"FORCE READ", "a", 0, ""}, {"FORCE WRITE", "a", 0, "rest"}},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := testredis.Start(t), testredis.Start(t)
			heardOurs, heardTheirs := messages(t, ours), messages(t, theirs)
			for i, a := range acts {
				where := fmt.Sprintf("step %d, %s by %s: ", i+1, a.op, a.owner)
				reply, err := redis.String(theirs.Do(t, "EVAL", redisson[a.op], 2, "k", rwChannel, a.lease, a.owner, "{k}"), nil)
				if err != nil {
					t.Fatal(err)
				}
				got := outcomeOf(step(t, ours, a.op, a.owner, a.lease, ""))
				// Redisson answers a read unlock that leaves others holding with 0, though this owner is out.
				if got != reply && !(got == "1" && reply == "0") {
					t.Errorf("%sanswered %s, Redisson %s", where, got, reply)
				}
				mine, left := record(t, ours)
				their, leftTheirs := record(t, theirs)
				if a.differs != "rest" && !slices.Equal(mine, their) || a.differs == "rest" && len(mine) != 0 {
					t.Errorf("%sleaves\n%q, Redisson\n%q", where, mine, their)
				}
				for key, ms := range left {
					d := ms - leftTheirs[key]
					redissonAdds := a.op == "WLOCK" && d < 0
					if (d < -1000 || d > 1000) && !redissonAdds && !strings.Contains(a.differs, "ttl") {
						t.Errorf("%s%s has %d ms left, Redisson's %d", where, key, ms, leftTheirs[key])
					}
				}
				if m, n := heardOurs(), heardTheirs(); !slices.Equal(m, n) && !strings.Contains(a.differs, "message") {
					t.Errorf("%spublishes %q, Redisson %q", where, m, n)
				}
			}
			if mine, _ := record(t, ours); len(mine) != 0 {
				t.Errorf("left: %q", mine)
			}
		})
	}
}

func left(t *testing.T, s *testredis.Server, key string) int64 {
	t.Helper()
	return s.Do(t, "PTTL", key).(int64)
}

func about(t *testing.T, s *testredis.Server, key string, ms int64) {
	t.Helper()
	if got := left(t, s, key); got > ms || got < ms*3/5 { // the machine may be busy
		t.Errorf("%s has %d ms left, want %d", key, got, ms)
	}
}

func TestRWLeases(t *testing.T) {
	s := testredis.Start(t)
	want(t, step(t, s, "WLOCK", "a", 6000000, ""), "[1 1 6000000 0 1]")
	want(t, step(t, s, "RLOCK", "a", 50000, ""), "[1 1 50000 0 1]")
	want(t, step(t, s, "RLOCK", "a", 50000, ""), "[1 2 50000 0 1]")
	want(t, step(t, s, "UNLOCK READ", "a", 0, ""), "[0 1]")
	about(t, s, "k", 6000000) // not cut down to what the other read hold has
	if reply := step(t, s, "WLOCK", "a", 10000, ""); !strings.HasPrefix(reply, "[1 2 59") && !strings.HasPrefix(reply, "[1 2 6000000 ") {
		t.Fatal(reply)
	}
	about(t, s, "k", 6000000) // entering again neither shortens it nor adds to it
	want(t, step(t, s, "UNLOCK WRITE", "a", 0, "A"), "[1 0]")
	about(t, s, "k", 50000) // as long as somebody reads
	want(t, step(t, s, "RENEW READ", "a", 900000, ""), "[1 1 900000]")
	about(t, s, "k", 900000)
	want(t, step(t, s, "RENEW READ", "a", 20000, ""), "[1 1 20000]")
	about(t, s, "k", 20000)
	step(t, s, "RLOCK", "b", 600000, "")
	want(t, step(t, s, "RENEW READ", "a", 15000, ""), "[1 1 15000]")
	about(t, s, "k", 600000)
	about(t, s, holdsOf("a")+":1", 15000)
	s.Do(t, "FLUSHALL")

	// A lock that somebody made lasting gets an end again.
	step(t, s, "RLOCK", "a", 300000, "")
	s.Do(t, "PERSIST", "k")
	step(t, s, "RLOCK", "b", 300000, "")
	about(t, s, "k", 300000)
	want(t, step(t, s, "WLOCK", "c", 300000, "")[:5], "[0 0 ")
	s.Do(t, "PERSIST", "k")
	want(t, run(t, s, scripts.ReadRenew, []string{"k", holdsOf("a")}, 300000, soon, "a"), "1")
	about(t, s, "k", 300000)
	s.Do(t, "PERSIST", "k")
	step(t, s, "UNLOCK READ", "a", 0, "")
	about(t, s, "k", 300000)
	s.Do(t, "PERSIST", "k")
	want(t, step(t, s, "WLOCK", "c", 300000, ""), "[0 0 -1 0]")

	s.Do(t, "FLUSHALL")
	step(t, s, "WLOCK", "a", 10000, "")
	step(t, s, "RLOCK", "a", 400000, "")
	step(t, s, "RENEW WRITE", "a", 20000, "")
	about(t, s, "k", 400000) // its own read hold needs the hash for longer
	want(t, step(t, s, "RENEW WRITE", "a", 900000, ""), "[1 1 900000]")
	want(t, step(t, s, "RENEW WRITE", "b", 900000, ""), "[-1 0 0]")
}

// TestRWDeadReaders: a reader whose own lease is over counts for nobody, also while the hash still names it.
func TestRWDeadReaders(t *testing.T) {
	s := testredis.Start(t)
	step(t, s, "RLOCK", "dead", 30000, "")
	step(t, s, "RLOCK", "dead", 30000, "")
	step(t, s, "RLOCK", "a", 30000, "")
	s.Do(t, "DEL", holdsOf("dead")+":1", holdsOf("dead")+":2")
	want(t, run(t, s, scripts.ReadLook, []string{"k", holdsOf("dead"), token}, "dead")[17:], " 0 0 0 <nil>]")
	want(t, run(t, s, scripts.ReadRenew, []string{"k", holdsOf("dead"), "k", holdsOf("a")}, 30000, soon, "--", "dead", "a"), "[0 1]")
	want(t, run(t, s, scripts.Info, []string{"k", token, "none"}, "{k}")[:5], "[hash")
	if reply := run(t, s, scripts.Info, []string{"k", token, "none"}, "{k}"); strings.Contains(reply, "dead") || !strings.HasSuffix(reply, "mode read a 1]") {
		t.Error(reply)
	}
	want(t, step(t, s, "RENEW READ", "dead", 1000, ""), "[-1 0 0]")
	want(t, step(t, s, "RLOCK", "dead", 50000, ""), "[1 1 50000 0 1]") // begins anew
	s.Do(t, "DEL", holdsOf("dead")+":1")
	want(t, step(t, s, "UNLOCK READ", "dead", 0, ""), "[-1 0]")
	want(t, fmt.Sprint(s.Do(t, "HEXISTS", "k", "dead")), "0")
	step(t, s, "RLOCK", "dead", 30000, "")
	s.Do(t, "DEL", holdsOf("dead")+":1")
	heard := messages(t, s)
	want(t, step(t, s, "UNLOCK READ", "a", 0, ""), "[1 0]")
	want(t, contents(t, s)+strings.Join(heard(), ","), "0")

	step(t, s, "WLOCK", "a", 30000, "")
	step(t, s, "RLOCK", "a", 30000, "")
	s.Do(t, "DEL", holdsOf("a")+":1")
	want(t, step(t, s, "UNLOCK WRITE", "a", 0, ""), "[1 0]")
	want(t, contents(t, s), "")
}

// TestReadersThatAreNotLookedAt: in a hash of more than a script may look at, others count as readers, also if it has no TTL.
func TestReadersThatAreNotLookedAt(t *testing.T) {
	s := testredis.Start(t)
	many := []any{"HSET", "k", "mode", "read", "a", 1}
	for i := range 5001 {
		many = append(many, fmt.Sprint("r", i), 1)
	}
	for name, others := range map[string][]any{
		"many fields": many, "a large count": {"HSET", "k", "mode", "read", "a", 1, "dead", 9000, "b", 1},
	} {
		for _, op := range []string{"UNLOCK READ", "RENEW READ"} {
			s.Do(t, "FLUSHALL")
			s.Do(t, others...)
			for _, owner := range []string{"a", "b", "r1"} {
				s.Do(t, "SET", holdsOf(owner)+":1", 1, "PX", 600000)
			}
			step(t, s, op, "a", 1000, "")
			if left(t, s, "k") < 600000 {
				t.Errorf("%s, %s: the lock has %d ms left", name, op, left(t, s, "k"))
			}
		}
	}
}
