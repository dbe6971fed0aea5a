package history

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// The oracles are tried on small histories made by hand: those that must pass, and those that must not.

// made is a history written as one line for each call: time of the call, time of the reply (ms), owner, the command, reply.
// Owners that begin with # are connections.
func made(t *testing.T, text string) (ops []*Op) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		ops = append(ops, madeOp(t, line))
		ops[len(ops)-1].ID = len(ops)
	}
	return ops
}

type verdict struct {
	name  string
	wrong bool
	text  string
}

func judge(t *testing.T, cases []verdict, oracle func(ops []*Op) []Violation) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if wrong := oracle(made(t, c.text)); c.wrong != (len(wrong) > 0) {
				t.Errorf("found %v in\n%s", wrong, c.text)
			}
		})
	}
}

func TestIntervals(t *testing.T) {
	judge(t, []verdict{
		{"one after the other", false, `
			0 1 #1 LOCK k -> OK
			5 6 #1 UNLOCK k -> 1
			5 7 #2 LOCK k BLOCK 9 -> OK`},
		{"two at once", true, `
			0 1 #1 LOCK k -> OK
			2 3 #2 LOCK k -> OK
			5 6 #1 UNLOCK k -> 1`},
		{"the lease was over", false, `
			0 1 #1 LOCK k PX 100 -> OK
			101 102 #2 LOCK k -> OK`},
		{"one of several was given back before Redis refused the rest", false, `
			0 1 a MULTILOCK k PX 900 -> OK
			2 9 a MULTIUNLOCK k -> ERR
			10 11 #2 LOCK k -> OK`},
		{"an UNLOCK that Redis refused", true, `
			0 1 a LOCK k PX 900 -> OK
			2 9 a UNLOCK k -> ERR
			10 11 #2 LOCK k -> OK`},
		{"the lease was not over", true, `
			0 1 #1 LOCK k PX 100 -> OK
			90 92 #2 LOCK k -> OK`},
		{"the reply came late, and is about less than a lease", false, `
			0 90 #1 LOCK k PX 50 -> OK
			60 95 #2 LOCK k -> OK`},
		{"a LOCK that nobody waits for is done when the lease is over, and RENEW finds that", false, `
			0 1 a LOCK k PX 100 -> ?
			2 3 a LOCK k PX 100 -> OK
			104 200 #2 LOCK k PX 100 -> OK
			201 202 #2 UNLOCK k -> 1
			50 210 a RENEW k PX 300 -> 1
			211 212 a UNLOCK k -> 1`},
		{"and none such is under way", true, `
			2 3 a LOCK k PX 100 -> OK
			104 200 #2 LOCK k PX 100 -> OK
			201 202 #2 UNLOCK k -> 1
			50 210 a RENEW k PX 300 -> 1
			211 212 a UNLOCK k -> 1`},
		{"a LOCK that came before another one is done after it, and UNLOCK tells of its hold", false, `
			0 300 a LOCK k PX 500 -> OK
			1 2 a LOCK k PX 100 -> OK
			110 111 #2 LOCK k PX 20 -> OK
			310 311 a UNLOCK k -> 1`},
		{"a LOCK that was done before another one", true, `
			0 1 a LOCK k PX 500 -> OK
			1 2 a LOCK k PX 100 -> OK
			510 511 #2 LOCK k PX 20 -> OK
			530 531 a UNLOCK k -> 1`},
		{"entered again so late that it was a grant of its own", false, `
			0 1 #1 RLOCK k PX 100 -> OK
			2 1500 #1 RLOCK k PX 100 -> OK
			600 601 #2 WLOCK k PX 100 -> OK
			1501 1502 #1 RENEW k READ -> 1
			1503 1504 #1 UNLOCK k READ -> 1`},
		{"it held past its lease, as it was told later", true, `
			0 1 #1 LOCK k -> OK
			1500 1501 #2 LOCK k -> OK
			1600 1601 #1 UNLOCK k -> 1`},
		{"it may have lost it past its lease", false, `
			0 1 #1 LOCK k -> OK
			1500 1501 #2 LOCK k -> OK
			1600 1601 #1 UNLOCK k -> LOCKLOST`},
		{"what it took anew says nothing of before", false, `
			0 1 #1 LOCK k PX 10 -> OK
			20 21 #2 LOCK k PX 10 -> OK
			30 31 #1 LOCK k PX 10 -> OK
			32 33 #1 UNLOCK k -> 1`},
		{"forced", false, `
			0 1 #1 LOCK k -> OK
			2 9 #3 UNLOCK k FORCE -> 1
			3 4 #2 LOCK k -> OK`},
		{"forced while its reply was on the way", false, `
			0 9 #1 LOCK k -> OK
			2 4 #3 UNLOCK k FORCE -> 1
			5 6 #2 LOCK k -> OK`},
		{"nothing was there to force", true, `
			0 1 #1 LOCK k -> OK
			2 3 #3 UNLOCK k FORCE -> 0
			4 5 #2 LOCK k -> OK`},
		{"hung up", false, `
			0 1 #1 LOCK k -> OK
			2 2 #1 CLOSE -> OK
			3 4 #2 LOCK k -> OK`},
		{"still inside once", true, `
			0 1 #1 LOCK k -> OK
			1 2 #1 LOCK k -> OK
			3 4 #1 UNLOCK k -> 0
			5 6 #2 LOCK k -> OK`},
		{"renewed to less", false, `
			0 1 #1 LOCK k PX 500 -> OK
			2 3 #1 RENEW k PX 10 -> 1
			20 21 #2 LOCK k -> OK`},
		{"renewed", true, `
			0 1 #1 LOCK k PX 10 -> OK
			2 3 #1 RENEW k PX 500 -> 1
			20 21 #2 LOCK k -> OK`},
		{"readers share", false, `
			0 1 #1 RLOCK k -> OK
			2 3 #2 RLOCK k -> OK`},
		{"a writer shares with nobody", true, `
			0 1 #1 RLOCK k -> OK
			2 3 #2 WLOCK k -> OK`},
		{"but with itself", false, `
			0 1 #1 WLOCK k -> OK
			2 3 #1 RLOCK k -> OK`},
		{"an owner on two connections", false, `
			0 1 a LOCK k -> OK
			2 3 a LOCK k -> OK`},
	}, func(ops []*Op) []Violation { return Intervals("k", ops, second) })
}

func TestIntervalsOnAQuorum(t *testing.T) {
	judge(t, []verdict{
		{"UNLOCK tells that it held", true, `
			0 1 a LOCK k PX 100 -> OK
			200 201 #2 LOCK k -> OK
			300 301 a UNLOCK k -> 1`},
		{"not after a RENEW without a majority", false, `
			0 1 a LOCK k PX 100 -> OK
			50 150 a RENEW k PX 500 -> ?
			200 201 #2 LOCK k -> OK
			300 301 a UNLOCK k -> 1`},
		{"not after a LOCK without a majority", false, `
			0 1 a LOCK k PX 100 -> OK
			1 150 a LOCK k PX 500 -> NOQUORUM
			200 201 #2 LOCK k -> OK
			300 301 a UNLOCK k -> 1`},
		{"but after the next LOCK again", true, `
			0 1 a LOCK k PX 100 -> OK
			50 150 a RENEW k PX 500 -> ?
			160 161 a LOCK k PX 20 -> OK
			200 201 #2 LOCK k -> OK
			300 301 a UNLOCK k -> 1`},
		{"a lease is shorter by what clocks drift", false, `
			0 1 a LOCK k PX 1000 -> OK
			989 990 #2 LOCK k -> OK`},
	}, func(ops []*Op) []Violation {
		sure, watchdog := Drifted(ops, second, true)
		return Intervals("k", sure, watchdog)
	})
}

func TestTokens(t *testing.T) {
	judge(t, []verdict{
		{"rising", false, `
			0 1 #1 LOCK k FENCE -> 5
			2 3 #2 LOCK k FENCE -> 6`},
		{"falling", true, `
			0 1 #1 LOCK k FENCE -> 5
			2 3 #2 LOCK k FENCE -> 4`},
		{"at the same time", false, `
			0 3 #1 LOCK k FENCE -> 5
			1 2 #2 LOCK k FENCE -> 4`},
		{"twice", true, `
			0 3 #1 LOCK k FENCE -> 5
			1 2 #2 LOCK k FENCE -> 5`},
		{"sent again", true, `
			0 1 a LOCK k FENCE -> 5
			2 3 a LOCK k FENCE -> 5`},
		{"twice at once for one owner", false, `
			0 3 a LOCK k FENCE -> 5
			1 2 a LOCK k FENCE -> 5`},
	}, func(ops []*Op) []Violation { return Tokens("k", ops) })
}

func TestEffects(t *testing.T) {
	judge(t, []verdict{
		{"one by one", false, `
			0 1 #1 FENCED k SET n 1 -> OK
			2 3 #2 FENCED k SET n 2 -> OK`},
		{"a lost update", true, `
			0 1 #1 FENCED k SET n 1 -> OK
			2 3 #2 FENCED k SET n 1 -> OK`},
		{"refused ones do not count", false, `
			0 1 #1 FENCED k SET n 1 -> OK
			2 3 #2 FENCED k SET n 1 -> LOCKLOST
			4 5 #2 FENCED k SET n 2 -> OK`},
		{"one of unknown outcome was done", false, `
			0 1 #1 FENCED k SET n 1 -> ?
			4 5 #2 FENCED k SET n 2 -> OK`},
		{"the last one is not there", true, `
			0 1 #1 FENCED k SET n 1 -> OK
			4 5 #2 FENCED k SET n 2 -> OK
			4 5 #2 FENCED k SET n 3 -> OK`},
	}, func(ops []*Op) []Violation {
		e := Counters(ops)["n"]
		return e.Exact("n", min(2, e.highest))
	})
}

func TestFIFO(t *testing.T) {
	oracle := func(ops []*Op) []Violation {
		for _, o := range ops {
			if o.Block > 0 {
				o.Queued = o.Block * ms
			}
		}
		wrong, _ := FIFO("k", ops)
		return wrong
	}
	judge(t, []verdict{ // BLOCK says here when it was seen in the queue
		{"in order", false, `
			0 20 a FAIRLOCK k BLOCK 5 -> OK
			6 30 b FAIRLOCK k BLOCK 7 -> OK`},
		{"past one that waited", true, `
			0 40 a FAIRLOCK k BLOCK 5 -> OK
			6 30 b FAIRLOCK k BLOCK 7 -> OK`},
		{"with a lease, past one that waited", true, `
			0 40 a FAIRLOCK k BLOCK 5 PX 900 -> OK
			6 30 b FAIRLOCK k BLOCK 7 PX 900 -> OK`},
		{"past one that was granted too late, and asked again", false, `
			0 40 a FAIRLOCK k BLOCK 5 PX 20 -> OK
			6 30 b FAIRLOCK k BLOCK 7 PX 900 -> OK`},
		{"past one that gave up", false, `
			0 40 a FAIRLOCK k BLOCK 5 -> nil
			6 30 b FAIRLOCK k BLOCK 7 -> OK`},
		{"past one that came later than the owner's request without an answer", false, `
			0 10 b FAIRLOCK k BLOCK 4 -> ?
			3 40 a FAIRLOCK k BLOCK 5 -> OK
			11 30 b FAIRLOCK k BLOCK 12 -> OK`},
		{"past one that waited, while its owner has asked here, too", false, `
			0 35 b FAIRLOCK k BLOCK 4 -> nil
			3 40 a FAIRLOCK k BLOCK 5 -> OK
			11 30 b FAIRLOCK k BLOCK 12 -> OK`},
		{"past one whose place was that of its owner's request without an answer", false, `
			0 4 a FAIRLOCK k BLOCK 2 -> ?
			4 40 a FAIRLOCK k BLOCK 5 -> OK
			6 30 b FAIRLOCK k BLOCK 7 -> OK`},
		{"past one that waited, by an owner who had been refused before", true, `
			0 2 b FAIRLOCK k BLOCK 1 -> nil
			3 40 a FAIRLOCK k BLOCK 5 -> OK
			11 30 b FAIRLOCK k BLOCK 12 -> OK`},
		{"they came together", false, `
			0 40 a FAIRLOCK k BLOCK 5 -> OK
			4 30 b FAIRLOCK k BLOCK 7 -> OK`},
	}, oracle)
}

func TestStarved(t *testing.T) {
	judge(t, []verdict{
		{"held all the time", false, `
			0 1 #1 LOCK k -> OK
			2 20000 #2 LOCK k BLOCK 0 -> OK
			19999 20001 #1 UNLOCK k -> 1`},
		{"nobody held it", true, `
			0 1 #1 LOCK k -> OK
			2 20000 #2 LOCK k BLOCK 0 -> OK
			3 4 #1 UNLOCK k -> 1`},
		{"one with a name held it until its lease was over", false, `
			0 1 a LOCK k PX 9000 -> OK
			2 10000 #2 LOCK k BLOCK 0 -> OK`},
		{"its lease was over long before", true, `
			0 1 a LOCK k PX 90 -> OK
			2 10000 #2 LOCK k BLOCK 0 -> OK`},
		{"hung up, and was not released", true, `
			0 1 #1 LOCK k -> OK
			2 20000 #2 LOCK k BLOCK 0 -> OK
			3 4 #1 CLOSE -> OK`},
		{"nil after nobody held it", true, `
			2 8000 #2 LOCK k BLOCK 8000 -> nil`},
		{"a MULTILOCK held it while it waited for another lock", false, `
			0 18000 a MULTILOCK k PX 900 BLOCK 0 -> OK
			2 20000 #2 LOCK k BLOCK 0 -> OK
			19000 19001 a MULTIUNLOCK k -> 1`},
		{"a MULTILOCK that got nothing held it meanwhile", false, `
			0 18000 #1 MULTILOCK k BLOCK 18000 -> nil
			2 20000 #2 LOCK k BLOCK 0 -> OK`},
		{"a MULTILOCK that got nothing had given it back before it answered", true, `
			0 11000 a MULTILOCK k PX 9000 BLOCK 11000 -> nil
			2 21000 #2 LOCK k BLOCK 0 -> OK`},
		{"a MULTILOCK had given it back long before", true, `
			0 1000 a MULTILOCK k PX 900 BLOCK 1000 -> nil
			2 20000 #2 LOCK k BLOCK 0 -> OK`},
	}, func(ops []*Op) []Violation { return Starved("k", ops, 10*second) })
}

func TestEnds(t *testing.T) {
	oracle := func(faults, quorum bool) func(ops []*Op) []Violation {
		return func(ops []*Op) []Violation {
			r := &Recorder{seen: map[string][]sighting{}}
			calls := slices.DeleteFunc(slices.Clone(ops), func(o *Op) bool { return o.Verb == "SEEN" })
			for _, o := range ops {
				if o.Verb == "SEEN" {
					owner, _, _ := strings.Cut(o.Owner, "#")
					r.seen["k"] = append(r.seen["k"], sighting{o.Call, o.Return, owner})
				}
			}
			return r.Ends("k", calls, 10*second, faults, quorum)
		}
	}
	judge(t, []verdict{
		{"within its lease", false, `
			0 1 a LOCK k PX 500 -> OK
			400 401 a SEEN k -> OK`},
		{"past its lease", true, `
			0 1 a LOCK k PX 500 -> OK
			600 601 a SEEN k -> OK`},
		{"a connection's, past its lease", true, `
			0 1 #1 LOCK k PX 500 -> OK
			600 601 #1 SEEN k -> OK`},
		{"it is renewed", false, `
			0 1 a LOCK k -> OK
			60000 60001 a SEEN k -> OK`},
		{"a lease for what is renewed", false, `
			0 1 a LOCK k -> OK
			2 3 a LOCK k PX 500 -> OK
			60000 60001 a SEEN k -> OK`},
		{"taken again with a lease", true, `
			0 1 a LOCK k -> OK
			2 3 a UNLOCK k -> 1
			4 5 a LOCK k PX 500 -> OK
			600 601 a SEEN k -> OK`},
		{"a RENEW with a lease ends the renewals", true, `
			0 1 a LOCK k -> OK
			2 3 a RENEW k PX 500 -> 1
			600 601 a SEEN k -> OK`},
		{"a RENEW without one begins them", false, `
			0 1 a LOCK k PX 500 -> OK
			2 3 a RENEW k -> 1
			60000 60001 a SEEN k -> OK`},
		{"a RENEW to less that was sent again, which only lengthens", false, `
			0 1 a LOCK k PX 5000 -> OK
			2 1200 a RENEW k PX 500 -> 1
			4000 4001 a SEEN k -> OK`},
		{"a connection's, which sets the lease again", true, `
			0 1 #1 LOCK k PX 5000 -> OK
			2 1200 #1 RENEW k PX 500 -> 1
			4000 4001 #1 SEEN k -> OK`},
		{"a MULTILOCK that did not hear that it kept a lock alive", false, `
			0 1500 a MULTILOCK k PX 500 -> OK
			6000 6001 a SEEN k -> OK`},
		{"the longer of two leases", false, `
			0 1 a LOCK k PX 5000 -> OK
			2 3 a LOCK k PX 500 -> OK
			4000 4001 a SEEN k -> OK`},
		{"the lease of its other side", false, `
			0 1 a WLOCK k PX 500 -> OK
			2 3 a RLOCK k PX 5000 -> OK
			4000 4001 a SEEN k -> OK`},
		{"the lease of the other side that a connection has given back", false, `
			0 1 #1 WLOCK k PX 5000 -> OK
			2 3 #1 RLOCK k PX 500 -> OK
			4 5 #1 UNLOCK k WRITE -> 1
			4000 4001 #1 SEEN k -> OK`},
		{"given back on both sides", true, `
			0 1 #1 WLOCK k PX 5000 -> OK
			2 3 #1 RLOCK k PX 500 -> OK
			4 5 #1 UNLOCK k WRITE -> 1
			6 7 #1 UNLOCK k READ -> 1
			400 401 #1 SEEN k -> OK`},
		{"given back", true, `
			0 1 a LOCK k -> OK
			2 3 a UNLOCK k -> 1
			4 5 a SEEN k -> OK`},
		{"while it is given back", false, `
			0 1 a LOCK k -> OK
			2 9 a UNLOCK k -> 1
			4 5 a SEEN k -> OK`},
		{"told lost before Redis drops it", false, `
			0 1 a LOCK k -> OK
			9000 9001 a UNLOCK k -> LOCKLOST
			9900 9901 a SEEN k -> OK`},
		{"an UNLOCK of unknown outcome", false, `
			0 1 a LOCK k -> OK
			2 3 a UNLOCK k -> ?
			60000 60001 a SEEN k -> OK`},
		{"a LOCK of unknown outcome", false, `
			0 1 a LOCK k PX 500 -> ?
			5000 5001 a SEEN k -> OK`},
		{"long after it", true, `
			0 1 a LOCK k PX 500 -> ?
			6000 6001 a SEEN k -> OK`},
		{"an UNLOCK that did not reach Redis", true, `
			0 1 #1 LOCK k -> OK
			2 3 #1 UNLOCK k ALL -> ERR
			21000 21001 #1 SEEN k -> OK`},
		{"its connection has closed", true, `
			0 1 #1 LOCK k -> OK
			2 2 #1 CLOSE -> OK
			6000 6001 #1 SEEN k -> OK`},
		{"somebody who never asked", true, `
			0 1 a LOCK k -> OK
			2 3 b SEEN k -> OK`},
		{"while a MULTILOCK that is refused waits for others", false, `
			0 300 a MULTILOCK k PX 5000 BLOCK 300 -> nil
			200 201 a SEEN k -> OK`},
		{"a MULTILOCK that was refused", true, `
			0 300 a MULTILOCK k PX 5000 BLOCK 300 -> nil
			400 401 a SEEN k -> OK`},
	}, oracle(false, false))
	judge(t, []verdict{
		{"a MULTILOCK that was refused, and could not give it back", false, `
			0 300 a MULTILOCK k PX 5000 BLOCK 300 -> nil
			400 401 a SEEN k -> OK`},
		{"its connection has closed, and its proxy is cut off", false, `
			0 1 #1 LOCK k -> OK
			2 2 #1 CLOSE -> OK
			6000 6001 #1 SEEN k -> OK`},
		{"a connection's, over a wire that is slow", false, `
			0 1 #1 LOCK k PX 500 -> OK
			700 701 #1 SEEN k -> OK`},
		{"a connection's, for longer than a wire may be slow", true, `
			0 1 #1 LOCK k PX 500 -> OK
			1600 1601 #1 SEEN k -> OK`},
		{"a LOCK that its proxy did when it was stopped no more", false, `
			0 1 a LOCK k PX 500 -> ?
			24000 24001 a SEEN k -> OK`},
		{"long after that", true, `
			0 1 a LOCK k PX 500 -> ?
			26000 26001 a SEEN k -> OK`},
		{"a named owner's, which nobody renews", true, `
			0 1 a LOCK k PX 500 -> OK
			700 701 a SEEN k -> OK`},
	}, oracle(true, false))
	judge(t, []verdict{
		{"nodes that the UNLOCK has not reached", false, `
			0 1 a LOCK k -> OK
			2 3 a UNLOCK k -> 1
			6000 6001 a SEEN k -> OK`},
		{"for longer than a lease", true, `
			0 1 a LOCK k -> OK
			2 3 a UNLOCK k -> 1
			12000 12001 a SEEN k -> OK`},
	}, oracle(true, true))
}

// A lock is seen for those whose it is, on as many nodes as are enough.
func TestLook(t *testing.T) {
	node := func(hashes map[string][]string, others ...string) Asker {
		return func(words ...any) []string {
			if words[0] == "HKEYS" {
				return hashes[words[1].(string)]
			}
			return slices.Concat(slices.Collect(maps.Keys(hashes)), others)
		}
	}
	one := node(map[string][]string{"p": {"a"}, "r": {"mode", "b", "gone"}, "w": {"mode", "c:write", "uuid:7:write"}},
		"{r}:b:rwlock_timeout:1", "{r}:left:rwlock_timeout:1", "{none}:left:rwlock_timeout:1", "lockproxy_watch:{p}:a", "redisson_lock_token:{p}", "n:p")
	for enough, want := range map[int][]string{1: {"p a", "q d", "r b", "w ", "w c"}, 2: {"p a"}} {
		r := NewRecorder()
		r.Look([]Asker{one, node(map[string][]string{"p": {"a"}, "q": {"d"}})}, enough)
		var got []string
		for key, all := range r.seen {
			for _, s := range all {
				got = append(got, key+" "+s.owner)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("on %d nodes: %q, want %q", enough, got, want)
		}
	}
}

func TestLosses(t *testing.T) {
	judge(t, []verdict{
		{"for no reason", true, `
			0 1 #1 LOCK k -> OK
			2 3 #1 UNLOCK k -> LOCKLOST`},
		{"by force", false, `
			0 1 #1 LOCK k -> OK
			2 3 #2 UNLOCK k FORCE -> 1
			4 5 #1 UNLOCK k -> LOCKLOST`},
		{"by force that was asked for while this was under way", false, `
			0 1 #1 LOCK k -> OK
			2 9 #1 UNLOCK k -> LOCKLOST
			3 8 #2 UNLOCK k FORCE -> 1`},
		{"by no reason, and by force later", true, `
			0 1 #1 LOCK k -> OK
			2 3 #1 UNLOCK k -> LOCKLOST
			4 5 #2 UNLOCK k FORCE -> 1`},
	}, func(ops []*Op) []Violation { return Losses("k", ops) })
	oracle := func(quorum bool) func(ops []*Op) []Violation {
		return func(ops []*Op) []Violation { return Forced("k", ops, quorum) }
	}
	judge(t, []verdict{
		{"told by UNLOCK", false, `
			0 1 #1 LOCK k -> OK
			2 3 #2 UNLOCK k FORCE -> 1
			4 5 #1 UNLOCK k -> LOCKLOST`},
		{"given back all the same", true, `
			0 1 #1 LOCK k -> OK
			2 3 #2 UNLOCK k FORCE -> 1
			4 5 #1 UNLOCK k -> 1`},
		{"taken anew meanwhile", false, `
			0 1 #1 LOCK k -> OK
			2 3 #2 UNLOCK k FORCE -> 1
			4 5 #1 LOCK k -> OK
			6 7 #1 UNLOCK k -> 1`},
		{"given back while that was under way", false, `
			0 1 #1 LOCK k -> OK
			2 9 #2 UNLOCK k FORCE -> 1
			4 5 #1 UNLOCK k -> 1`},
	}, oracle(false))
	judge(t, []verdict{
		{"given back on a quorum", false, `
			0 1 #1 LOCK k -> OK
			2 3 #2 UNLOCK k FORCE -> 1
			4 5 #1 UNLOCK k -> 1`},
		{"renewed on a quorum", true, `
			0 1 #1 LOCK k -> OK
			2 3 #2 UNLOCK k FORCE -> 1
			4 5 #1 RENEW k -> 1`},
	}, oracle(true))
}
