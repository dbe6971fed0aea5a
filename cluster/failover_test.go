package cluster

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// promoted waits, past the package, until a replica is a master that serves, and says when that was.
func promoted(t *testing.T, replica *testredis.Server, at chan<- time.Time) {
	conn := replica.Dial(t)
	go func() {
		for {
			role, _ := redis.Values(conn.Do("ROLE"))
			info, _ := redis.String(conn.Do("CLUSTER", "INFO"))
			if len(role) > 0 && strings.Contains(info, "cluster_state:ok") {
				if kind, _ := redis.String(role[0], nil); kind == "master" {
					at <- time.Now()
					return
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
}

// outage has a client write to a master's slot, one command after the other, while that master is taken away. It is served again
// while commands are still tried again.
func outage(t *testing.T, take func(*testredis.Server)) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1, testredis.QuickFailover)
	c := openCluster(t, tc, Options{RetryFor: 30 * time.Second})
	cl := newClient(t, c, learn(t, c), 3)
	key := keyIn(100)
	cl.expect("INCR "+key, ":1\r\n")
	at := make(chan time.Time, 1)
	promoted(t, tc.Servers[3], at)
	taken := time.Now()
	take(tc.Servers[0])
	lost := 0
	for {
		p := NewPlan(cl.table.command("INCR", key))
		cl.e.Do(context.Background(), []*Plan{p})
		if p.Err == nil && strings.HasPrefix(string(p.Reply), ":") {
			break
		}
		var unknown *upstream.LostError
		if lost++; !errors.As(p.Err, &unknown) || lost > 3 {
			t.Fatalf("got %q, %v", p.Reply, p.Err)
		}
	}
	back := time.Now()
	own := <-at
	t.Logf("the cluster was ok again after %v, the client served %v later; %d replies lost, %+v",
		own.Sub(taken).Round(time.Millisecond), back.Sub(own).Round(time.Millisecond), lost, c.Stats())
	// Reads and writes go on, on all slots, and nothing is left of the old master.
	cl.expect("MSET a 1 b 2 c 3 "+key+" 4", "+OK\r\n")
	cl.expect("MGET a b c "+key, "*4\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n")
	cl.expect("DBSIZE", ":4\r\n")
	if n := c.Snapshot().Owner(100); n == nil || n.Addr != tc.Servers[3].Addr() {
		t.Errorf("slot 100 is with %v", n)
	}
	cl.expect("SCRIPT FLUSH", "+OK\r\n")
}

func TestMasterKilled(t *testing.T) { outage(t, func(s *testredis.Server) { s.Kill() }) }

// A master that hangs keeps its connections, and answers nothing.
func TestMasterFrozen(t *testing.T) {
	outage(t, func(s *testredis.Server) {
		s.Stop()
		t.Cleanup(s.Cont)
	})
}

// A failover that somebody has ordered loses nothing.
func TestFailoverOrdered(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1)
	c := openCluster(t, tc, Options{RetryFor: 30 * time.Second})
	all := learn(t, c)
	l := &load{name: "x", tags: []string{"a", "b", "c", "d"}}
	cl := newClient(t, c, all, 3)
	done := make(chan error, 1)
	go func() {
		var err error
		for turn := 0; turn < 2 && err == nil; turn++ {
			for i := range 3 {
				err = errors.Join(err, tc.Failover(tc.Servers[[2]int{3, 0}[turn]+i]), tc.WaitOK())
			}
		}
		done <- err
	}()
	for {
		if err := l.run(cl); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Millisecond) // which leaves the processors to other tests
		select {
		case err := <-done:
			t.Logf("%d pipelines, %+v", l.n, c.Stats())
			if err != nil || c.Stats().Moved == 0 {
				t.Fatal(err, c.Stats())
			}
			return
		default:
		}
	}
}

// What only masters run is run by the new one, even if nobody has told of it yet.
func TestWaitAfterFailover(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1)
	c := openCluster(t, tc, Options{Refresh: time.Hour, RetryFor: 30 * time.Second})
	cl := newClient(t, c, learn(t, c), 3)
	if got := cl.do("WAIT 0 100")[0]; got[0] != ':' {
		t.Errorf("%q", got)
	}
	if err := tc.Failover(tc.Servers[3]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old master knows", func() bool {
		role, err := redis.Values(tc.Servers[0].Do(t, "ROLE"), nil)
		kind, _ := redis.String(role[0], nil)
		return err == nil && kind == "slave"
	})
	if got := cl.do("WAIT 0 100")[0]; got[0] != ':' {
		t.Errorf("%q", got)
	}
}

func TestNothingToRetryFor(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, testredis.QuickFailover)
	c := openCluster(t, tc, Options{RetryFor: 300 * time.Millisecond})
	cl := newClient(t, c, learn(t, c), 2)
	key := keyIn(100)
	cl.expect("SET "+key+" 1", "+OK\r\n")
	tc.Servers[0].Kill()
	// Whatever the first hears: its reply may be lost.
	cl.do("SET " + key + " 2")
	var unsent *upstream.NotSentError
	p := NewPlan(cl.table.command("SET", key, "3"))
	cl.e.Do(context.Background(), []*Plan{p})
	if !errors.As(p.Err, &unsent) && !strings.HasPrefix(string(p.Reply), "-CLUSTERDOWN") {
		t.Errorf("got %q, %v", p.Reply, p.Err)
	}
	eventually(t, "the others say that the cluster is down", func() bool {
		return cl.do("SET " + key + " 4")[0] == "-CLUSTERDOWN The cluster is down\r\n"
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	p = NewPlan(cl.table.command("SET", key, "5"))
	began := time.Now()
	cl.e.Do(ctx, []*Plan{p})
	if time.Since(began) < c.opts.RetryFor && (!errors.As(p.Err, &unsent) || !errors.Is(p.Err, context.DeadlineExceeded)) {
		t.Errorf("got %q, %v", p.Reply, p.Err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{RetryFor: time.Hour})
	cl := newClient(t, c, learn(t, c), 2)
	cl.expect("MSET a 1 b 2 c 3", "+OK\r\n")
	tc.Servers[0].Kill()
	waits := make(chan []string, 1)
	go func() { waits <- cl.do("SET "+keyIn(100)+" 1", "DBSIZE", "SCAN 0") }()
	eventually(t, "it is tried again", func() bool { return c.Stats().Retried > 2 })
	c.Close()
	for i, got := range <-waits {
		if !strings.HasPrefix(got, "error: ") || i > 0 && got != "error: upstream unavailable: connection closed by the proxy" {
			t.Errorf("%d: got %q", i, got)
		}
	}
}

// Writes to one list go on through the loss of a master. Some replies are lost, and some writes with the old master; but
// nothing is done twice, nor in another order, nor by a command whose reply said that it was not.
func TestOrderThroughFailover(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1, testredis.QuickFailover)
	c := openCluster(t, tc, Options{RetryFor: 30 * time.Second})
	all := learn(t, c)
	const clients = 4
	var stop atomic.Bool
	var wg sync.WaitGroup
	refused := make([]map[string]bool, clients)
	lost, sent := atomic.Int64{}, atomic.Int64{}
	pushed := make([]atomic.Int64, clients)
	for i := range clients {
		cl := newClient(t, c, all, 2)
		refused[i] = map[string]bool{}
		wg.Go(func() {
			key := keyIn(100 + i)
			for n := 0; !stop.Load(); {
				var plans []*Plan
				for range 20 {
					n++
					plans = append(plans, NewPlan(all.command("RPUSH", key, strconv.Itoa(n))))
				}
				cl.e.Do(context.Background(), plans)
				for k, p := range plans {
					var unknown *upstream.LostError
					switch {
					case errors.As(p.Err, &unknown):
						lost.Add(1)
					case p.Err != nil || p.Reply[0] != ':':
						refused[i][strconv.Itoa(n-19+k)] = true
					}
				}
				sent.Add(20)
				pushed[i].Store(int64(n))
			}
		})
	}
	goesOn := func(more int64) {
		for i := range pushed {
			enough := pushed[i].Load() + more
			eventually(t, "the load goes on", func() bool { return pushed[i].Load() > enough })
		}
	}
	goesOn(500)
	tc.Servers[0].Kill()
	goesOn(500)
	stop.Store(true)
	wg.Wait()
	t.Logf("%d sent, %d replies lost, %+v", sent.Load(), lost.Load(), c.Stats())
	for i := range clients {
		list, err := redis.Strings(tc.Servers[3].Do(t, "LRANGE", keyIn(100+i), 0, -1), nil)
		if err != nil || len(list) < 100 {
			t.Fatalf("%d in the list of %d, %v", len(list), pushed[i].Load(), err)
		}
		last := 0
		for _, text := range list {
			n, _ := strconv.Atoi(text)
			if n <= last || refused[i][text] {
				t.Fatalf("%d behind %d, refused: %v", n, last, refused[i][text])
			}
			last = n
		}
	}
}

// A question to all masters that can do without some is answered while one is away and its slots are nobody's.
func TestPartialWithoutAMaster(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, testredis.QuickFailover)
	c := openCluster(t, tc, Options{RetryFor: time.Hour})
	cl := newClient(t, c, learn(t, c), 2)
	ask := func() string {
		p := NewPlan(cl.table.command("ECHO", "a"))
		facts := *p.cmd.Facts
		facts.ReadOnly, facts.Request, facts.Response, facts.Partial = true, AllShards, Each, true
		p.Set(Command{Raw: p.cmd.Raw, Args: p.cmd.Args, Facts: &facts})
		return cl.run([]*Plan{p})[0]
	}
	if got := ask(); got != "*3\r\n"+strings.Repeat("$1\r\na\r\n", 3) {
		t.Errorf("of three: %q", got)
	}
	tc.Servers[1].Kill()
	if got := ask(); got != "*2\r\n"+strings.Repeat("$1\r\na\r\n", 2) {
		t.Errorf("of two: %q", got)
	}
	eventually(t, "the slots are nobody's", func() bool {
		info, _ := redis.String(tc.Servers[0].Dial(t).Do("CLUSTER", "INFO"))
		return strings.Contains(info, "cluster_state:fail")
	})
	c.Refreshed(t.Context())
	if got := ask(); got != "*2\r\n"+strings.Repeat("$1\r\na\r\n", 2) {
		t.Errorf("of two, with slots that are nobody's: %q", got)
	}
}
