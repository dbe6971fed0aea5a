package upstream

import (
	"context"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// doorClosers are the ways in which Redis begins to ask for a password.
var doorClosers = map[string][]any{
	"requirepass": {"CONFIG", "SET", "requirepass", "secret"},
	"off":         {"ACL", "SETUSER", "default", "off"},
	"resetpass":   {"ACL", "SETUSER", "default", "resetpass"},
	"a password":  {"ACL", "SETUSER", "default", ">secret"},
}

// asksForPassword says whether err is Redis' NOAUTH.
func asksForPassword(err error) bool {
	re := Refused(err)
	return re != nil && code(re.Line) == "NOAUTH"
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

// closing does to a node what sets a password, and opens the door again. Whoever was in stays in; a newcomer is told, and gets no connection.
func closing(t *testing.T, n *Node, do func(args ...any), change []any) {
	t.Helper()
	nobody := Identity{Proto: 2}
	if err := n.Admit(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	shared, alone := open(t, n, nobody), private(t, n, nobody)
	used := dedicate(t, n, nobody)
	do(change...)
	if err := n.Admit(t.Context(), ""); !asksForPassword(err) {
		t.Errorf("a newcomer: %v", err)
	}
	for _, p := range []*Pipe{shared, alone} {
		expect(t, p, "+PONG\r\n", []string{"PING"})
	}
	used.expect(t, "+PONG\r\n", "PING")
	further := dedicate(t, n, Identity{Proto: 3}) // of whoever is in: the connection on which the first newcomer was asked about
	further.expect(t, "+PONG\r\n", "PING")
	if _, err := n.Dedicate(t.Context(), nobody); !asksForPassword(err) {
		t.Errorf("one more: %v", err)
	}
	shared.dropLink(ErrTimeout)
	eventually(t, "the connection is made again, and refused", func() bool {
		var c client
		_, err := c.do(shared, []string{"PING"})
		return asksForPassword(err)
	})
	used.Close()
	further.Close()
	do("ACL", "SETUSER", "default", "on", "nopass")
	if err := n.Admit(t.Context(), ""); err != nil {
		t.Errorf("without a password again: %v", err)
	}
	expect(t, open(t, n, nobody), "+PONG\r\n", []string{"PING"})
}

func TestPasswordSetLater(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	for name, change := range doorClosers {
		t.Run(name, func(t *testing.T) { closing(t, newNode(t, targetOf(t, s), NodeOptions{}), doer(t, s), change) })
	}
}

// Before 6.2 Redis has no RESET: it is asked over a new connection each time then.
func TestPasswordSetWithoutRESET(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--rename-command", "RESET", "")
	closing(t, newNode(t, targetOf(t, s), NodeOptions{}), doer(t, s), doorClosers["requirepass"])
}

// So it is with a master that Sentinels name.
func TestPasswordSetAtAMasterOfSentinels(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	closing(t, newNode(t, follow(t, g), NodeOptions{}), doer(t, g.Master()), doorClosers["resetpass"])
}

// What else Redis may answer to PING is no word on passwords: it looks at them first.
func TestOtherAnswersAreNoWordOnPasswords(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--busy-reply-threshold 20")
	n := newNode(t, targetOf(t, s), NodeOptions{})
	stuck := s.Dial(t)
	done := make(chan struct{})
	go func() { stuck.Do("EVAL", "while true do end", 0); close(done) }()
	eventually(t, "Redis is busy", func() bool {
		_, err := s.Dial(t).Do("PING")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	if err := n.Admit(t.Context(), ""); err != nil {
		t.Errorf("while Redis is busy: %v", err)
	}
	p, err := n.Open(context.Background(), Identity{Proto: 2}) // for SCRIPT KILL
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	expect(t, p, "+OK\r\n", []string{"SCRIPT", "KILL"})
	<-done
	s.Do(t, "ACL", "SETUSER", "default", "-ping")
	if err := n.Admit(t.Context(), ""); err != nil {
		t.Errorf("whoever may not PING: %v", err)
	}
	s.Do(t, "CONFIG", "SET", "maxclients", "1")
	if _, err := n.Private(context.Background(), Identity{Proto: 2}); Refused(err) == nil {
		t.Errorf("a Redis that is full: %v", err)
	}
	if err := newNode(t, targetOf(t, s), NodeOptions{}).Admit(t.Context(), ""); Refused(err) == nil {
		t.Errorf("a newcomer at a Redis that is full: %v", err)
	}
}

// A connection that lockproxy itself ends, because users have changed, or its one client has gone, is no sign that Redis is out of reach. The
// test is not parallel: others would raise the counter.
func TestReplacedConnectionsAreNoFailures(t *testing.T) {
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	shared, alone := open(t, n, Identity{Proto: 2}), private(t, n, Identity{Proto: 3})
	pipes := []*Pipe{shared, alone}
	for name, end := range map[string]func(){
		"renewed": func() { n.Renew(func(Identity) bool { return true }) },
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
	shared.dropLink(ErrTimeout)
	eventually(t, "a failure is counted", func() bool { return telemetry.PipeFailures.Value() == failures+1 })
}
