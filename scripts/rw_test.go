package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

const rwChannel = "redisson_rwlock:{k}"

// holdsOf is what the keys of an owner's read holds on k begin with.
func holdsOf(owner string) string { return "{k}:" + owner + ":rwlock_timeout" }

// rwKeys are the KEYS that the steps of a read/write lock share.
var rwKeys = []string{"k", rwChannel, token}

// connection is what a connection has of the read/write lock: what each step says that it is to have.
type connection struct{ reads, writes int }

var connections = map[*testredis.Server]map[string]*connection{}

// step runs one of our scripts on k for a connection, as the verbs do. A hold that Redis has no longer is forgotten.
func step(t *testing.T, s *testredis.Server, op, owner string, lease int) string {
	t.Helper()
	if connections[s] == nil {
		connections[s] = map[string]*connection{}
	}
	has := connections[s][owner]
	if has == nil {
		has = &connection{}
		connections[s][owner] = has
	}
	verb, side, _ := strings.Cut(strings.ToLower(op), " ")
	to := *has
	switch verb {
	case "rlock", "wlock":
		fence := map[string]string{"fence": "1"}[side]
		take := func(from connection) string {
			to, side = from, "read"
			if verb == "wlock" {
				side = "write"
				to.writes++
			} else {
				to.reads++
			}
			return run(t, s, scripts.RWAcquire, rwKeys, owner, side, to.reads, to.writes, lease, soon, fence, "{k}", "", 0, "PUBLISH")
		}
		reply := take(*has)
		if strings.HasPrefix(reply, "[-6 ") { // the engine tells a loss, and the next LOCK begins anew
			reply = take(connection{})
		}
		if strings.HasPrefix(reply, "[1 ") {
			*has = to
		}
		return reply
	case "unlock":
		if side == "read" && has.reads == 0 && has.writes > 0 || side == "write" && has.writes == 0 && has.reads > 0 {
			return "-1" // the engine asks Redis about no side that the connection does not have
		}
		switch side {
		case "both":
			to = connection{}
		case "read":
			to.reads = max(0, to.reads-1)
		case "write":
			to.writes = max(0, to.writes-1)
		}
		reply := run(t, s, scripts.RWRelease, rwKeys, owner, side, to.reads, to.writes, soon, "", "PUBLISH", "{k}")
		if reply == "1" || reply == "0" {
			*has = to
		}
		return reply
	case "renew":
		return run(t, s, scripts.RWExtend, []string{"k"}, owner, side, lease, soon, "set", "", "{k}")
	case "force":
		return run(t, s, scripts.RWForce, rwKeys[:2], "PUBLISH", soon, side, "{k}")
	}
	t.Fatal(op)
	return ""
}

// watchdog renews what a connection has of k.
func watchdog(t *testing.T, s *testredis.Server, owner string, reads, writes, lease int) string {
	t.Helper()
	return run(t, s, scripts.RWRenew, []string{"k"}, soon, owner, reads, writes, lease, "{k}")
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
	case reply == "1":
		return "1"
	case reply == "-1", strings.HasPrefix(reply, "[0 0 "), strings.HasPrefix(reply, "[-5 "):
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
		"leases of readers":    {R("a", 9000), R("b", 60000), {"RLOCK", "a", 5000, "ttl"}, r("b", "ttl"), r("a", ""), r("a", "")},
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
				got := outcomeOf(step(t, ours, a.op, a.owner, a.lease))
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

// flush has Redis forget everything, and step as well.
func flush(t *testing.T, s *testredis.Server) {
	t.Helper()
	s.Do(t, "FLUSHALL")
	delete(connections, s)
}

func TestRWLeases(t *testing.T) {
	s := testredis.Start(t)
	want(t, step(t, s, "WLOCK", "a", 6000000), "[1 1 6000000 0 0]")
	want(t, step(t, s, "RLOCK", "a", 50000)[:5], "[1 1 ")
	want(t, step(t, s, "RLOCK", "a", 50000)[:5], "[1 0 ")
	want(t, step(t, s, "UNLOCK READ", "a", 0), "0")
	about(t, s, "k", 6000000) // not cut down to what the other read hold has
	if reply := numbers(t, step(t, s, "WLOCK", "a", 10000)); reply[1] != 0 || reply[2] < 3600000 {
		t.Fatal(reply)
	}
	about(t, s, "k", 6000000) // taking it once more neither shortens it nor adds to it
	want(t, step(t, s, "UNLOCK WRITE", "a", 0), "0")
	want(t, step(t, s, "UNLOCK WRITE", "a", 0), "1")
	about(t, s, "k", 50000) // as long as it reads
	want(t, step(t, s, "RENEW BOTH", "a", 900000), "[1 900000 0]")
	about(t, s, "k", 900000)
	want(t, step(t, s, "RENEW BOTH", "a", 20000), "[1 20000 0]")
	about(t, s, "k", 20000)
	step(t, s, "RLOCK", "b", 600000)
	want(t, step(t, s, "RENEW BOTH", "a", 15000), "[1 15000 0]")
	about(t, s, "k", 600000)
	about(t, s, holdsOf("a")+":1", 15000)
	want(t, step(t, s, "RENEW BOTH", "c", 15000), "[-1 0 0]")

	// A lock that somebody made lasting gets an end again.
	flush(t, s)
	step(t, s, "RLOCK", "a", 300000)
	s.Do(t, "PERSIST", "k")
	step(t, s, "RLOCK", "b", 300000)
	about(t, s, "k", 300000)
	want(t, step(t, s, "WLOCK", "c", 300000)[:5], "[0 0 ")
	s.Do(t, "PERSIST", "k")
	want(t, watchdog(t, s, "a", 1, 0, 300000), "[1]")
	about(t, s, "k", 300000)
	s.Do(t, "PERSIST", "k")
	step(t, s, "UNLOCK READ", "a", 0)
	about(t, s, "k", 300000)
	s.Do(t, "PERSIST", "k")
	want(t, step(t, s, "WLOCK", "c", 300000), "[0 0 -1 0 0]")

	// One hold of both sides has one lease.
	flush(t, s)
	step(t, s, "WLOCK", "a", 10000)
	step(t, s, "RLOCK", "a", 400000)
	about(t, s, "k", 400000)
	want(t, step(t, s, "RENEW BOTH", "a", 20000), "[1 20000 0]")
	about(t, s, "k", 20000)
	about(t, s, holdsOf("a")+":1", 20000)
	want(t, watchdog(t, s, "a", 1, 1, 900000), "[1]")
	about(t, s, "k", 900000)
	about(t, s, holdsOf("a")+":1", 900000)
}

// TestRWRenewal: a hold has gone if one of its sides has, and is not renewed then. Whatever one key is, the others are renewed.
func TestRWRenewal(t *testing.T) {
	s := testredis.Start(t)
	step(t, s, "WLOCK", "a", 60000)
	step(t, s, "RLOCK", "a", 60000)
	want(t, watchdog(t, s, "a", 1, 1, 30000), "[1]") // shortens nothing
	about(t, s, "k", 60000)
	s.Do(t, "DEL", holdsOf("a")+":1")
	want(t, watchdog(t, s, "a", 1, 1, 900000), "[0]")
	want(t, watchdog(t, s, "b", 0, 1, 900000), "[0]")
	about(t, s, "k", 60000)
	want(t, watchdog(t, s, "a", 0, 1, 900000), "[1]")
	about(t, s, "k", 900000)

	flush(t, s)
	var keys []string
	args := []any{soon}
	for _, key := range []string{"poison", "x", "gone", "plain", "y"} {
		keys = append(keys, key)
		args = append(args, "o", 1, 0, 30000, "{"+key+"}")
		if len(key) == 1 {
			run(t, s, scripts.RWAcquire, []string{key, "c", "t"}, "o", "read", 1, 0, 1000, soon, "", "{"+key+"}", "", 0, "PUBLISH")
			s.Do(t, "PEXPIRE", key, 600000)
			s.Do(t, "PEXPIRE", "{"+key+"}:o:rwlock_timeout:1", 600000)
			s.Do(t, "PEXPIRE", "{y}:o:rwlock_timeout:1", 20000)
		}
	}
	s.Do(t, "SET", "poison", "x")
	s.Do(t, "HSET", "plain", "o", 1)
	want(t, run(t, s, scripts.RWRenew, keys, args...), "[0 1 0 0 1]")
	for key, ms := range map[string]int64{"x": 600000, "{x}:o:rwlock_timeout:1": 600000, "y": 600000, "{y}:o:rwlock_timeout:1": 30000, "plain": -1} {
		if got := left(t, s, key); got > ms || got < ms*3/5 && ms > 0 {
			t.Errorf("%s has %d ms left, want %d", key, got, ms)
		}
	}
}

// TestRWDeadReaders: a reader whose own lease is over counts for nobody, also while the hash still names it.
func TestRWDeadReaders(t *testing.T) {
	s := testredis.Start(t)
	step(t, s, "RLOCK", "dead", 30000)
	step(t, s, "RLOCK", "dead", 30000)
	step(t, s, "RLOCK", "a", 30000)
	s.Do(t, "DEL", holdsOf("dead")+":1", holdsOf("dead")+":2")
	want(t, run(t, s, scripts.Look, []string{"k"}, "dead", "dead", "{k}", "dead"), "[0 0 0 0]")
	want(t, run(t, s, scripts.RWRenew, []string{"k", "k"}, soon, "dead", 2, 0, 30000, "{k}", "a", 1, 0, 30000, "{k}"), "[0 1]")
	if reply := run(t, s, scripts.Info, []string{"k", token, "none"}, "{k}", 5000); strings.Contains(reply, "dead") || !strings.HasSuffix(reply, "mode read a 1]") {
		t.Error(reply)
	}
	want(t, step(t, s, "RENEW BOTH", "dead", 1000), "[-1 0 0]")
	want(t, step(t, s, "RLOCK", "dead", 50000), "[1 1 50000 0 0]") // begins anew
	s.Do(t, "DEL", holdsOf("dead")+":1")
	heard := messages(t, s)
	want(t, step(t, s, "UNLOCK READ", "dead", 0)+strings.Join(heard(), ","), "-1")
	want(t, step(t, s, "UNLOCK READ", "a", 0), "1")
	want(t, contents(t, s)+strings.Join(heard(), ","), "0")

	// The last lease has ended, and the hash outlasts it: nobody has told the writers that wait.
	step(t, s, "RLOCK", "a", 30000)
	s.Do(t, "DEL", holdsOf("a")+":1")
	want(t, step(t, s, "UNLOCK READ", "a", 0)+strings.Join(heard(), ",")+contents(t, s), "-10")

	// A writer whose own read hold has been lost gives back all.
	flush(t, s)
	step(t, s, "WLOCK", "a", 30000)
	step(t, s, "RLOCK", "a", 30000)
	s.Do(t, "DEL", holdsOf("a")+":1")
	want(t, step(t, s, "UNLOCK WRITE", "a", 0), "-1") // it has lost what it was to keep
	want(t, step(t, s, "UNLOCK BOTH", "a", 0), "1")
	for end := time.Now().Add(time.Minute); contents(t, s) != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(contents(t, s))
		}
	}
}

// TestSweepOfDeadReaders: a writer gets a lock that dead readers alone are in, after a few tries if they are many, and no lock that somebody reads.
func TestSweepOfDeadReaders(t *testing.T) {
	s := testredis.Start(t)
	for _, dead := range []int{1, 100, 3000} {
		fields := []any{"HSET", "k", "mode", "read"}
		for i := range dead {
			fields = append(fields, fmt.Sprint("dead", i), 1)
		}
		flush(t, s)
		s.Do(t, fields...)
		s.Do(t, "HSET", "k", "alive", 1)
		s.Do(t, "SET", holdsOf("alive")+":1", 1, "PX", 600000)
		for range 20 {
			want(t, step(t, s, "WLOCK", "w", 600000)[:5], "[0 0 ")
		}
		s.Do(t, "DEL", holdsOf("alive")+":1")
		for tries := 0; ; tries++ {
			reply := step(t, s, "WLOCK", "w", 600000)
			if reply == "[1 1 600000 0 0]" {
				break
			}
			if want(t, reply, "[0 0 1 0 0]"); tries == 20 {
				t.Fatalf("%d dead readers bar a writer", dead)
			}
		}
		want(t, contents(t, s), "k")
		want(t, fmt.Sprint(s.Do(t, "HLEN", "k")), "2")
	}
}

// TestReaderCostsTheSame: what a reader does costs Redis the same with 100 and with 5,000 others: as many commands, none of which goes over all.
func TestReaderCostsTheSame(t *testing.T) {
	s := testredis.Start(t)
	cost := func(others int) map[string]string {
		flush(t, s)
		fields := []any{"HSET", "k", "mode", "read"}
		holds := []any{"MSET"}
		for i := range others {
			fields = append(fields, fmt.Sprint("r", i), 1)
			holds = append(holds, holdsOf(fmt.Sprint("r", i))+":1", 1)
		}
		s.Do(t, fields...)
		s.Do(t, holds...)
		for i := range others {
			s.Do(t, "PEXPIRE", holdsOf(fmt.Sprint("r", i))+":1", 600000)
		}
		s.Do(t, "PEXPIRE", "k", 600000)
		all := map[string]string{}
		for _, op := range []string{"RLOCK", "RLOCK", "RENEW BOTH", "UNLOCK READ", "UNLOCK READ"} {
			s.Do(t, "CONFIG", "RESETSTAT")
			if reply := step(t, s, op, "me", 30000); strings.HasPrefix(strings.Trim(reply, "["), "-") {
				t.Fatal(op, reply)
			}
			info, _ := redis.String(s.Do(t, "INFO", "commandstats"), nil)
			var calls []string
			for line := range strings.Lines(info) {
				name, figures, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
				if !found {
					continue
				}
				count, _, _ := strings.Cut(figures, ",")
				calls = append(calls, name+" "+count)
				if slices.Contains([]string{"hkeys", "hgetall", "hvals", "hscan"}, name) {
					t.Errorf("%s beside %d others: %s", op, others, name)
				}
			}
			slices.Sort(calls)
			all[op] += strings.Join(calls, ", ") + "; "
		}
		return all
	}
	few, many := cost(100), cost(5000)
	for op, calls := range few {
		want(t, op+": "+many[op], op+": "+calls)
	}
}

// TestReadersThatAreNotLookedAt: in a hash with more than a script may look at, the lock lasts as long as it did.
func TestReadersThatAreNotLookedAt(t *testing.T) {
	s := testredis.Start(t)
	many := []any{"HSET", "k", "mode", "read", "a", 1}
	for i := range 5001 {
		many = append(many, fmt.Sprint("r", i), 1)
	}
	for name, others := range map[string][]any{
		"many fields": many, "a large count": {"HSET", "k", "mode", "read", "a", 1, "dead", 9000, "b", 1},
	} {
		for _, op := range []string{"UNLOCK READ", "RENEW BOTH"} {
			flush(t, s)
			s.Do(t, others...)
			s.Do(t, "PEXPIRE", "k", 600000)
			for _, owner := range []string{"a", "b", "r1"} {
				s.Do(t, "SET", holdsOf(owner)+":1", 1, "PX", 600000)
			}
			if reply := step(t, s, op, "a", 1000); !strings.HasPrefix(strings.Trim(reply, "["), "1") {
				t.Error(name, op, reply)
			}
			about(t, s, "k", 600000)
		}
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
