package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// What any node can answer is answered by one that is up, long before the others say that home has failed.
func TestHomeIsLeft(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(*testing.T, *testredis.Server){
		"killed": func(_ *testing.T, s *testredis.Server) { s.Kill() },
		"frozen": func(t *testing.T, s *testredis.Server) {
			s.Stop()
			t.Cleanup(s.Cont)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc := testredis.StartCluster(t, 3, 0)
			c := openCluster(t, tc, Options{})
			cl := newClient(t, c, learn(t, c), 2)
			cl.e.home.at = 0
			cl.expect("PING", "+PONG\r\n")
			take(t, tc.Servers[0])
			began := time.Now()
			calls := [][2]string{
				{"PING", "+PONG\r\n"}, {"ECHO a", "$1\r\na\r\n"}, {"ACL WHOAMI", "$7\r\ndefault\r\n"}, {"ACL HELP", "*"},
				{"CONFIG GET databases", "*2\r\n$9\r\ndatabases"}, {"FUNCTION LIST", "*0"}, {"ROLE", "*3\r\n$6\r\nmaster"},
				{"COMMAND GETKEYS GET a", "*1\r\n$1\r\na"},
			}
			var lines []string
			for _, call := range calls {
				lines = append(lines, call[0])
			}
			for i, got := range cl.do(lines...) {
				if !strings.HasPrefix(got, calls[i][1]) {
					t.Errorf("%s: got %q, want %q", calls[i][0], got, calls[i][1])
				}
			}
			if name == "killed" {
				cl.expect("PUBLISH b c", ":0\r\n")
			} else if cl.e.home.at != 0 {
				t.Error("home is left, and a PUBLISH would overtake those that it has got")
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("answered after %v", took)
			}
		})
	}
}

// A home that is slow is waited for if there may be no connection to another node: by a command that was sent there before,
// and by one that comes when home is known to be in trouble, and another node would stand in for home.
func TestSlowHomeAtTheBound(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{Node: upstream.NodeOptions{Budget: upstream.NewBudget(1, 1)}})
	clients, all := make([]*client, 2), learn(t, c)
	for i := range clients {
		clients[i] = newClient(t, c, all, 2)
		clients[i].e.home.at = 0
		clients[i].expect("PING", "+PONG\r\n")
	}
	tc.Servers[0].Stop()
	t.Cleanup(tc.Servers[0].Cont)
	got := make(chan string, 2)
	ping := func(cl *client) { got <- cl.do("PING")[0] }
	go ping(clients[0])
	eventually(t, "it is asked elsewhere, and goes back", func() bool { return c.count.retried.Load() >= 2 || len(got) > 0 })
	eventually(t, "home is in trouble", c.Snapshot().Masters[0].InTrouble)
	go ping(clients[1])
	eventually(t, "so is the other one", func() bool { return c.count.retried.Load() >= 3 || len(got) > 0 })
	time.Sleep(5 * longPause) // both commands have been sent to home again by then, and still wait
	tc.Servers[0].Cont()
	for range clients {
		if reply := <-got; reply != "+PONG\r\n" {
			t.Errorf("got %q", reply)
		}
	}
}

// What any node can answer is answered by another one while home is up and loads its data.
func TestHomeThatLoads(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, "--enable-debug-command yes")
	c := openCluster(t, tc, Options{})
	cl := newClient(t, c, learn(t, c), 2)
	cl.e.home.at = 0
	cl.expect("PING", "+PONG\r\n")
	home := tc.Servers[0]
	home.Do(t, "DEBUG", "POPULATE", 20_000, "key", 1000)
	home.Do(t, "CONFIG", "SET", "loading-process-events-interval-bytes", 1024, "key-load-delay", 10_000, "rdbcompression", "no")
	reload, ping := home.Dial(t), home.Dial(t)
	if err := errors.Join(reload.Send("DEBUG", "RELOAD"), reload.Flush()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it loads", func() bool {
		_, err := ping.Do("PING")
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	})
	for i, got := range cl.do("PING", "ECHO a", "PING") {
		if want := []string{"+PONG\r\n", "$1\r\na\r\n", "+PONG\r\n"}[i]; got != want {
			t.Errorf("%d: got %q", i, got)
		}
	}
}

// fakeMasters are three nodes that share the slots. Each answers commands with what it says, and "" is no answer until go on is closed.
type fakeMasters struct {
	t      *testing.T
	ports  []int
	says   [3]string
	auth   [3]string       // what it says to AUTH
	asked  [3]atomic.Int64 // ECHO
	goOn   chan struct{}
	client *client
}

// startFakes opens a cluster of three nodes that say so, with a client of the user bob whose home is the first.
func startFakes(t *testing.T, says, auth [3]string, budget *upstream.Budget) *fakeMasters {
	f := &fakeMasters{t: t, says: says, auth: auth, goOn: make(chan struct{})}
	var ready sync.WaitGroup // all ports are known
	ready.Add(1)
	for i := range f.says {
		port, _ := fakeServer(t, func(_ int, line string) string {
			ready.Wait()
			return f.answer(i, line)
		})
		f.ports = append(f.ports, port)
	}
	ready.Done()
	target := upstream.ClusterTarget{Seeds: []string{fmt.Sprintf("127.0.0.1:%d", f.ports[0])}, Node: upstream.Target{Network: "tcp"}}
	c := openTarget(t, target, Options{RetryFor: time.Minute, Node: upstream.NodeOptions{Budget: budget}})
	f.client = &client{t: t, e: c.Executor(upstream.Identity{User: "bob", Password: "pw", Proto: 2}, NewHome())}
	t.Cleanup(f.client.e.Close)
	f.client.e.home.at = 0
	return f
}

// echo sends an ECHO, or if script a script that changes nothing.
func (f *fakeMasters) echo(script bool) string {
	facts := FactsOf("echo", nil, nil)
	if script {
		facts = FactsOf("eval_ro", []string{"readonly"}, nil)
	}
	return f.client.run([]*Plan{NewPlan(Command{Raw: resp.AppendCommand(nil, "ECHO", "a"), Args: [][]byte{[]byte("ECHO"), []byte("a")}, Facts: facts})})[0]
}

func (f *fakeMasters) answer(i int, line string) string {
	switch {
	case line == "CLUSTER SLOTS":
		slots := "*3\r\n"
		for k, port := range f.ports {
			slots += fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$2\r\nn%d\r\n", k*Slots/3, (k+1)*Slots/3-1, port, k)
		}
		return slots
	case strings.HasPrefix(line, "AUTH "):
		if f.auth[i] != "" {
			f.asked[i].Add(1)
			return f.auth[i]
		}
		return "+OK\r\n"
	case line == "ECHO a":
		f.asked[i].Add(1)
		if f.says[i] == "" {
			<-f.goOn
			return "+home\r\n"
		}
		return f.says[i]
	case line == "PING": // asked of connections without a password
		return "+PONG\r\n"
	}
	return "-ERR unknown\r\n"
}

const (
	loading    = "-LOADING Redis is loading the dataset in memory\r\n"
	busy       = "-BUSY Redis is busy running a script.\r\n"
	masterdown = "-MASTERDOWN Link with MASTER is down\r\n"
	noperm     = "-NOPERM this user has no permissions\r\n"
	wrongpass  = "-WRONGPASS invalid username-password pair\r\n"
)

// A refusal by home because it can run nothing at the moment is not the last word, unless no other node answers either.
func TestHomeThatRunsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says  [3]string
		auth  [3]string
		want  string
		asked [3]int64
	}{
		{says: [3]string{loading, "+b\r\n", "+c\r\n"}, want: "+b\r\n", asked: [3]int64{1, 1, 0}},
		{says: [3]string{busy, loading, "+c\r\n"}, want: "+c\r\n", asked: [3]int64{1, 1, 1}},
		{says: [3]string{masterdown, "+b\r\n", "+c\r\n"}, want: "+b\r\n", asked: [3]int64{1, 1, 0}},
		{says: [3]string{loading, busy, busy}, want: loading, asked: [3]int64{2, 1, 1}},
		{says: [3]string{noperm, "+b\r\n", "+c\r\n"}, want: noperm, asked: [3]int64{1, 0, 0}},
		{says: [3]string{loading, "+b\r\n", "+c\r\n"}, auth: [3]string{1: wrongpass}, want: "+c\r\n", asked: [3]int64{1, 1, 1}},
		{says: [3]string{loading, "+b\r\n", "+c\r\n"}, auth: [3]string{1: wrongpass, 2: wrongpass}, want: loading, asked: [3]int64{2, 1, 1}},
	} {
		f := startFakes(t, c.says, c.auth, nil)
		if got := f.echo(false); got != c.want {
			t.Errorf("%q, %q: got %q", c.says, c.auth, got)
		}
		for i := range f.asked {
			n, again := f.asked[i].Load(), c.auth[i] != "" // a connection that is refused is tried again after 10 ms
			if n < c.asked[i] || n > c.asked[i] && !again {
				t.Errorf("%q, %q: node %d was asked %d times", c.says, c.auth, i, n)
			}
		}
	}
	says := [3]string{loading, "+b\r\n", "+c\r\n"}
	f := startFakes(t, says, [3]string{}, nil)
	if got := f.echo(true); got != loading || f.asked[0].Load() != 1 {
		t.Errorf("what may be a script's own word stands: got %q", got)
	}
	f = startFakes(t, says, [3]string{}, upstream.NewBudget(1, 1))
	if got := f.echo(false); got != loading || f.asked[0].Load() != 2 {
		t.Errorf("there may be no connection to another: got %q", got)
	}
}

// A home that is slow has its reply waited for if no other node has one, whatever they refuse.
func TestSlowHomeBesideNodesThatRefuse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ says, auth [3]string }{
		"loading": {says: [3]string{"", loading, loading}},
		"busy":    {says: [3]string{"", busy, masterdown}},
		"no user": {says: [3]string{"", "+b\r\n", "+c\r\n"}, auth: [3]string{1: wrongpass, 2: wrongpass}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFakes(t, c.says, c.auth, nil)
			got := make(chan string, 1)
			go func() { got <- f.echo(false) }()
			eventually(t, "the others are asked", func() bool { return f.asked[1].Load() > 0 && f.asked[2].Load() > 0 || len(got) > 0 })
			close(f.goOn)
			if reply := <-got; reply != "+home\r\n" {
				t.Errorf("got %q", reply)
			}
		})
	}
}

// A node that says nothing keeps nobody waiting whom a home that loads has sent there.
func TestHomeThatLoadsBesideOneThatHangs(t *testing.T) {
	t.Parallel()
	f := startFakes(t, [3]string{loading, "", "+c\r\n"}, [3]string{}, nil)
	got := make(chan string, 1)
	go func() { got <- f.echo(false) }()
	eventually(t, "it is answered", func() bool { return len(got) > 0 })
	if reply := <-got; reply != "+c\r\n" {
		t.Errorf("got %q", reply)
	}
	close(f.goOn)
}

// What every batch is asked costs a command that is answered no memory.
func TestHomeCostsAnsweredCommandsNothing(t *testing.T) {
	e, n := &Executor{}, &Node{}
	if got := testing.AllocsPerRun(100, func() { e.leaveHome(n, nil) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// Where a command goes that any node can answer, by how it has failed at home and at the next nodes.
func TestPass(t *testing.T) {
	t.Parallel()
	type step struct {
		passed int
		home   bool
		f      failure
	}
	for s, want := range map[step]string{
		{0, true, unsent}:       "0 false", // it is sent again, and home is left
		{0, true, lost}:         "0 false",
		{0, true, refused}:      "0 false", // home's word stands
		{0, true, full}:         "0 false",
		{0, true, slow}:         "1 true",
		{0, true, ranNothing}:   "1 true",
		{3, true, ranNothing}:   "4 false", // all others have been asked
		{0, false, ranNothing}:  "1 true",  // one that stands in for home
		{0, false, refused}:     "1 true",
		{0, false, full}:        fmt.Sprint(behindAll, " true"),
		{1, false, ranNothing}:  "2 true",
		{1, false, refused}:     "2 true",
		{1, false, full}:        fmt.Sprint(behindAll, " true"),
		{behindAll, true, full}: fmt.Sprint(behindAll, " false"),
		{1, false, unsent}:      "2 false",
		{1, false, ended}:       "2 false",
	} {
		if now, again := s.f.pass(s.passed, s.home); fmt.Sprint(now, again) != want {
			t.Errorf("%+v: got %d %v, want %s", s, now, again, want)
		}
	}
}
