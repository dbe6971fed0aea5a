package upstream

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// full says what a Budget refuses: "", "all" or "user".
func full(err error) string {
	var f *FullError
	switch {
	case !errors.As(err, &f):
		return ""
	case f.User:
		return "user"
	}
	return "all"
}

func usedIs(t *testing.T, b *Budget, want int) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		used, _ := b.Used()
		if used == want {
			return
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("%d connections are counted, want %d", used, want)
		}
	}
}

func TestBudgetBoundsConnections(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Do(t, "ACL", "SETUSER", "ann", "on", ">pw", "+@all", "~*")
	b := NewBudget(12, 6) // 3 are kept for shared ones
	n, other := NewNode(targetOf(t, server), NodeOptions{Budget: b, DialTimeout: dialTime}), NewNode(targetOf(t, server), NodeOptions{Budget: b, DialTimeout: dialTime})
	defer other.Close()
	nobody, ann := Identity{Proto: 2}, Identity{User: "ann", Password: "pw", Proto: 2}
	var all []*Dedicated
	for i := range 6 {
		at := []*Node{n, other}[i%2]
		p := dedicate(t, at, nobody)
		all = append(all, p)
	}
	if _, err := n.Dedicate(context.Background(), nobody); full(err) != "user" {
		t.Errorf("a 7th connection of a user's: %v", err)
	}
	if _, err := n.Private(context.Background(), nobody); full(err) != "user" {
		t.Errorf("a private pipe as the 7th: %v", err)
	}
	for range 2 {
		dedicate(t, n, ann)
	}
	private, err := other.Private(context.Background(), ann)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Dedicate(context.Background(), ann); full(err) != "all" {
		t.Errorf("a 10th connection for one client alone: %v", err)
	}
	var shared []*Pipe
	for db := range 3 { // what is kept for them
		id := nobody
		id.DB = db
		p, err := n.Open(context.Background(), id)
		if err != nil {
			t.Fatalf("shared connection %d: %v", db, err)
		}
		shared = append(shared, p)
	}
	if _, err := n.Open(context.Background(), Identity{Proto: 2, DB: 3}); full(err) != "all" {
		t.Errorf("a shared connection too many: %v", err)
	}
	if _, err := n.Open(context.Background(), nobody); err != nil {
		t.Errorf("one more user of a shared connection: %v", err)
	}
	aside, err := n.Aside(context.Background(), nobody)
	if err != nil {
		t.Errorf("the proxy's own question: %v", err)
	} else {
		aside.Release()
	}
	usedIs(t, b, 12)

	private.Release()
	if !other.closeIdle("ann") {
		t.Error("the private pipe is not idle")
	}
	all[0].Close()
	usedIs(t, b, 10)
	all[0] = dedicate(t, n, nobody)
	all[0].GiveBack() // idle, it still counts, but makes room
	usedIs(t, b, 11)
	dedicate(t, other, nobody)
	usedIs(t, b, 11)
	shared[2].Release()
	if _, err := other.Open(context.Background(), Identity{Proto: 2, DB: 5}); err != nil {
		t.Errorf("with an idle shared one: %v", err)
	}
	if _, err := other.Open(context.Background(), Identity{Proto: 2, DB: 6}); err != nil {
		t.Errorf("in the place of an idle shared one: %v", err)
	}
	usedIs(t, b, 12)
	n.Close()
	other.Close()
	usedIs(t, b, 0)
}

// TestBudgetCountsNoFailures: a connection that is not made gives its place back.
func TestBudgetCountsNoFailures(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	b := NewBudget(8, 0)
	n := newNode(t, targetOf(t, server), NodeOptions{Budget: b})
	wrong := Identity{User: "nobody", Password: "x", Proto: 2}
	for range 20 {
		if _, err := n.Dedicate(context.Background(), wrong); Refused(err) == nil || full(err) != "" {
			t.Fatal(err)
		}
		if _, err := n.Private(context.Background(), wrong); Refused(err) == nil || full(err) != "" {
			t.Fatal(err)
		}
	}
	usedIs(t, b, 0)
	p := dedicate(t, n, Identity{Proto: 2})
	server.Kill()
	p.ends(t)
	usedIs(t, b, 0)
}

// TestBudgetFollowsALogin: a connection counts for the user who has logged in there, until it ends, and not any more after that.
func TestBudgetFollowsALogin(t *testing.T) {
	t.Parallel()
	b := NewBudget(12, 2)
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{Budget: b})
	nobody, ann := Identity{Proto: 2}, Identity{User: "ann", Password: "pw", Proto: 2}
	counted := func(want map[string]int) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return maps.Equal(b.alone.users, want)
	}
	var all []*Dedicated
	for i := range 3 { // one above ann's bound
		p := dedicate(t, n, nobody)
		p.Authenticated(ann)
		if all = append(all, p); !counted(map[string]int{"ann": i + 1}) {
			t.Errorf("after %d logins: %v", i+1, b.alone.users)
		}
	}
	all[0].Authenticated(Identity{Password: "pw"})
	if !counted(map[string]int{"ann": 2, "default": 1}) {
		t.Errorf("after another login: %v", b.alone.users)
	}
	for _, p := range all {
		p.Close()
	}
	usedIs(t, b, 0)
	all[0].Authenticated(ann)
	if !counted(map[string]int{}) {
		t.Errorf("afterwards: %v", b.alone.users)
	}
}

// TestBudgetKeepsHalf: connections that others can do without, or that go back with their replies, leave half to those that have no
// other way; a script that may share none waits for one that is given back.
func TestBudgetKeepsHalf(t *testing.T) {
	t.Parallel()
	b := NewBudget(16, 8)
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{Budget: b})
	id, script := Identity{Proto: 2}, Identity{Proto: 2, For: Scripts}
	var pipes []*Pipe
	for range 4 {
		p, err := n.Private(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		pipes = append(pipes, p)
	}
	if _, err := n.Private(context.Background(), id); full(err) != "user" {
		t.Errorf("a private pipe above half: %v", err)
	}
	for range 4 {
		dedicate(t, n, id)
	}
	waited := make(chan error)
	go func() {
		p, err := n.Private(context.Background(), script)
		if err == nil {
			p.Release()
		}
		waited <- err
	}()
	select {
	case err := <-waited:
		t.Fatalf("a script before a pipe is given back: %v", err)
	case <-time.After(20 * roomMost):
	}
	pipes[0].Release()
	if err := <-waited; err != nil {
		t.Errorf("a script when a pipe is given back: %v", err)
	}
	if p, err := n.Open(context.Background(), Identity{Proto: 2, For: Writes}); err != nil || p.id != id {
		t.Errorf("above half in place of a connection that only makes things quicker: %v, %v", p, err)
	}
}
