package upstream

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// doorClosers are the ways in which Redis begins to ask for a password.
var doorClosers = map[string][]any{
	"requirepass": {"CONFIG", "SET", "requirepass", "secret"},
	"off":         {"ACL", "SETUSER", "default", "off"},
	"resetpass":   {"ACL", "SETUSER", "default", "resetpass"},
	"a password":  {"ACL", "SETUSER", "default", ">secret"},
}

const noAuth = "-NOAUTH Authentication required.\r\n"

// refusedSoon waits until Redis asks for a password on p.
func refusedSoon(t *testing.T, p *Pipe) {
	t.Helper()
	eventually(t, "a password is asked for", func() bool {
		var c client
		got, err := c.do(p, []string{"PING"})
		var lost *LostError
		if errors.As(err, &lost) {
			t.Fatalf("a command was lost: %v", err)
		}
		return got == noAuth
	})
}

// closing does to a node's open connections what a password must do, and opens the door again.
func closing(t *testing.T, n *Node, do func(args ...any), change []any) {
	t.Helper()
	shared, alone, ann := open(t, n, Identity{Proto: 2}), private(t, n, Identity{Proto: 2}), open(t, n, Identity{Proto: 2, User: "ann", Password: "pw"})
	used, ended := dedicate(t, n, Identity{Proto: 2})
	in, inEnded := dedicate(t, n, Identity{Proto: 2})
	if err := in.Write(resp.AppendCommand(nil, "AUTH", "ann", "pw")); err != nil {
		t.Fatal(err)
	}
	inEnded.wait(t, "+OK\r\n")
	in.Authenticated(Identity{Proto: 2, User: "ann", Password: "pw"})
	idle, _ := dedicate(t, n, Identity{Proto: 2})
	idle.GiveBack()
	for _, p := range []*Pipe{shared, alone, ann} {
		expect(t, p, "+PONG\r\n", []string{"PING"})
	}
	do(change...)
	refusedSoon(t, shared)
	refusedSoon(t, alone)
	if err := <-ended.ended; !errors.Is(err, errPasswordAsked) {
		t.Errorf("a client's own connection ended with %v", err)
	}
	used.Close()
	expect(t, ann, "+PONG\r\n", []string{"PING"})
	if err := in.Write(resp.AppendCommand(nil, "PING")); err != nil {
		t.Error(err)
	}
	inEnded.wait(t, "+OK\r\n+PONG\r\n")
	in.Close()
	late, heard := dedicate(t, n, Identity{Proto: 2})
	if late == idle {
		t.Error("an idle connection from before is still given out")
	}
	if err := late.Write(resp.AppendCommand(nil, "PING")); err != nil {
		t.Fatal(err)
	}
	heard.wait(t, noAuth)
	late.Close()
	do("ACL", "SETUSER", "default", "on", "nopass")
	expect(t, shared, "+PONG\r\n", []string{"PING"}) // the same connection: it follows what Redis says
}

// doer runs commands past the node, as somebody whose connection stays.
func doer(t *testing.T, s *testredis.Server) func(args ...any) {
	c := s.Dial(t)
	return func(args ...any) {
		t.Helper()
		if _, err := c.Do(args[0].(string), args[1:]...); err != nil {
			t.Fatal(err)
		}
	}
}

// A connection that was made while Redis asked no password serves nobody once it does, also when nobody asks anything.
func TestOpenConnectionsEndWhenAPasswordIsAsked(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--user", "ann", "on", ">pw", "~*", "&*", "+@all")
	n := newNode(t, targetOf(t, s), NodeOptions{})
	for name, change := range doorClosers {
		t.Run(name, func(t *testing.T) { closing(t, n, doer(t, s), change) })
	}
}

// So it is with a master that Sentinels name.
func TestOpenConnectionsEndAtAMasterOfSentinels(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{Node: []string{"--user", "ann", "on", ">pw", "~*", "&*", "+@all"}})
	target := follow(t, g)
	n := newNode(t, target, NodeOptions{})
	closing(t, n, doer(t, g.Master()), doorClosers["resetpass"])
}

// A moment without a password, between two looks, leaves no connection behind that goes on serving; and none of the
// commands under way when it ends is lost.
func TestMomentWithoutAPassword(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	do := doer(t, s)
	do("CONFIG", "SET", "requirepass", "one")
	n := newNode(t, targetOf(t, s), NodeOptions{})
	var asked atomic.Int32 // 1: yes, 2: no
	n.OnPassword(func(yes bool) {
		if yes {
			asked.Store(1)
		} else {
			asked.Store(2)
		}
	})
	refusedSoon(t, open(t, n, Identity{Proto: 2}))
	if asked.Load() != 1 {
		t.Error("not told that a password is asked for")
	}
	for range 3 {
		do("CONFIG", "SET", "requirepass", "")
		p := private(t, n, Identity{Proto: 2})
		expect(t, p, "+PONG\r\n", []string{"PING"})
		eventually(t, "it is told that none is asked for", func() bool { return asked.Load() == 2 }) // an answer of before may come behind
		do("CONFIG", "SET", "requirepass", "two")
		refusedSoon(t, p)
		eventually(t, "it is told", func() bool { return asked.Load() == 1 })
	}
}

// What else Redis may answer to the first PING is no word on passwords.
func TestOtherAnswersAreNoWordOnPasswords(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--busy-reply-threshold 20")
	n := newNode(t, targetOf(t, s), NodeOptions{})
	if asks, err := n.AsksPassword(context.Background()); asks || err != nil {
		t.Errorf("Redis asks: %v, %v", asks, err)
	}
	stuck := s.Dial(t)
	done := make(chan struct{})
	go func() { stuck.Do("EVAL", "while true do end", 0); close(done) }()
	eventually(t, "Redis is busy", func() bool {
		asks, err := n.AsksPassword(context.Background())
		return !asks && err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	p, err := n.Open(context.Background(), Identity{Proto: 2}) // for SCRIPT KILL
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	expect(t, p, "+OK\r\n", []string{"SCRIPT", "KILL"})
	<-done
	s.Do(t, "ACL", "SETUSER", "default", "-ping")
	if asks, err := n.AsksPassword(context.Background()); asks || err != nil {
		t.Errorf("who may not PING is asked for a password: %v, %v", asks, err)
	}
	s.Do(t, "CONFIG", "SET", "maxclients", "1")
	if asks, err := n.AsksPassword(context.Background()); asks || err == nil {
		t.Errorf("a Redis that is full has said: %v", asks)
	}
	if _, err := n.Open(context.Background(), Identity{Proto: 2, DB: 1}); err == nil {
		t.Error("a Redis that is full has let a connection in")
	}
}

// Before 6.2 Redis has no RESET: it is asked over a new connection each time then.
func TestLooksWithoutRESET(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--rename-command", "RESET", "")
	n := newNode(t, targetOf(t, s), NodeOptions{})
	p := open(t, n, Identity{Proto: 3})
	expect(t, p, "+PONG\r\n", []string{"PING"})
	doer(t, s)("CONFIG", "SET", "requirepass", "x")
	eventually(t, "a password is asked for", func() bool {
		var c client
		_, err := c.do(p, []string{"PING"})
		re := Refused(err)
		return re != nil && strings.HasPrefix(re.Line, "NOAUTH")
	})
}

// Strangers may be served for a second at most after Redis asks for a password: until the next look, which may take as long again.
func TestStrangersForASecondAtMost(t *testing.T) {
	if 2*lookPeriod > time.Second {
		t.Errorf("a look every %v", lookPeriod)
	}
}

// A connection that lockproxy itself ends, because users have changed, a password is asked for, or its one client has gone, is no sign
// that Redis is out of reach. The test is not parallel: others would raise the counter.
func TestReplacedConnectionsAreNoFailures(t *testing.T) {
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	shared, alone := open(t, n, Identity{Proto: 2}), private(t, n, Identity{Proto: 3})
	pipes := []*Pipe{shared, alone}
	for name, end := range map[string]func(){
		"renewed":  func() { n.Renew(func(Identity) bool { return true }) },
		"password": n.anonymous.shut,
		"left": func() {
			for _, p := range pipes {
				l := p.link.Load()
				l.fail(ErrLeft) // what Request.End does to a private pipe's
			}
		},
	} {
		var before []*link
		for _, p := range pipes {
			expect(t, p, "+PONG\r\n", []string{"PING"})
			before = append(before, p.link.Load())
		}
		failures := telemetry.PipeFailures.Value()
		end()
		for i, p := range pipes {
			eventually(t, "another connection", func() bool { l := p.link.Load(); return l != nil && l != before[i] })
		}
		if got := telemetry.PipeFailures.Value(); got != failures {
			t.Errorf("%s: %d failures", name, got-failures)
		}
	}
	failures := telemetry.PipeFailures.Value()
	shared.drop(ErrTimeout)
	eventually(t, "a failure is counted", func() bool { return telemetry.PipeFailures.Value() == failures+1 })
}

// A shared connection without a password is closed when nobody has used it for a while, and Redis is asked no more; one with a user, or with a
// password, is kept.
func TestUnusedConnectionsWithoutAPasswordEnd(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "ann", "on", ">pw", "+@all", "~*")
	n := newNode(t, targetOf(t, s), NodeOptions{})
	unused, used, ann := Identity{Proto: 2}, Identity{Proto: 3}, Identity{Proto: 2, User: "ann", Password: "pw"}
	use := func(id Identity) *Pipe {
		p, err := n.Open(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	use(unused).Release()
	p := use(used)
	use(ann).Release()
	kept := func(id Identity) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.shared[id] != nil
	}
	if !kept(unused) {
		t.Error("it was closed with its last user: each client that comes anew would make one")
	}
	eventually(t, "the unused one is closed", func() bool { return !kept(unused) })
	if !kept(used) || !kept(ann) {
		t.Error("one that is used, or has a password, was closed")
	}
	p.Release()
	eventually(t, "Redis is asked no more", func() bool {
		n.anonymous.mu.Lock()
		defer n.anonymous.mu.Unlock()
		return !n.anonymous.watched && n.anonymous.count == 0
	})
	expect(t, open(t, n, unused), "+PONG\r\n", []string{"PING"})
}

// The room that such a connection had is there for another one at once.
func TestUnusedConnectionsGiveTheirRoomBack(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	n := newNode(t, targetOf(t, s), NodeOptions{Budget: NewBudget(1, 1)})
	for range 20 {
		for _, id := range []Identity{{Proto: 2}, {Proto: 3}} {
			p, err := n.Open(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
			n.mu.Lock()
			p.unused = time.Now().Add(-unusedFor)
			n.mu.Unlock()
			n.closeUnused()
		}
	}
}
