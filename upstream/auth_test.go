package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Who waits for a turn has it after one of each other address, however many of those there are.
func TestTurnsAreFairToAddresses(t *testing.T) {
	t.Parallel()
	var all turns
	ctx := context.Background()
	for range authTurns {
		if err := all.waitTurn(ctx, "many"); err != nil {
			t.Fatal(err)
		}
	}
	came := make(chan string, 100)
	var waiting sync.WaitGroup
	wait := func(address string, n int) {
		for range n {
			waiting.Go(func() {
				if all.waitTurn(ctx, address) == nil {
					came <- address
				}
			})
		}
		eventually(t, "they wait", func() bool {
			all.mu.Lock()
			defer all.mu.Unlock()
			return len(all.waiting[address]) == n
		})
	}
	wait("many", 50)
	gone, cancel := context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() { left <- all.waitTurn(gone, "gone") }()
	eventually(t, "it waits", func() bool {
		all.mu.Lock()
		defer all.mu.Unlock()
		return len(all.waiting["gone"]) == 1
	})
	wait("one", 1)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for i, want := range []string{"many", "one", "many", "many"} {
		all.passTurn()
		if got := <-came; got != want {
			t.Errorf("turn %d is of %q, not of %q", i, got, want)
		}
	}
	for range 48 - 1 + authTurns {
		all.passTurn()
	}
	waiting.Wait()
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.waiting) != 0 || len(all.order) != 0 {
		t.Errorf("%d addresses still wait", len(all.waiting))
	}
}

// Passwords are asked about side by side, over a few connections.
func TestPasswordsSideBySide(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--requirepass", "right")
	n := newNode(t, targetOf(t, s), NodeOptions{})
	var asking sync.WaitGroup
	for i := range 100 {
		asking.Go(func() {
			if err := n.Authenticate(context.Background(), fmt.Sprint(i%3), "", "wrong"); Refused(err) == nil {
				t.Error(err)
			}
			if err := n.Authenticate(context.Background(), "x", "", "right"); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	n.auths.mu.Lock()
	defer n.auths.mu.Unlock()
	if k := len(n.auths.idle); k < 1 || k > authTurns {
		t.Errorf("%d connections", k)
	}
}

type secret string

func (s secret) Password() string { return string(s) }

// What Redis says of the proxy's own account, whose password is in a file, is not told as if clients had logged in so: their identities have
// no Secret, and one that has not logged in yet would be taken for it.
func TestRefusedSecretIsNoClients(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t, "--requirepass one")), NodeOptions{})
	told := make(chan Identity, 100)
	n.OnRefused(func(id Identity, _ *ReplyError) { told <- id })
	client := Identity{User: "default", Password: "one", Proto: 2}
	var p *Pipe
	for _, id := range []Identity{{User: "default", Secret: secret("one"), Proto: 2}, client} {
		var err error
		if p, err = n.Open(context.Background(), id); err != nil {
			t.Fatalf("%v: %v", id, err)
		}
		defer p.Release()
	}
	for _, words := range [][]string{{"CONFIG", "SET", "requirepass", "two"}, {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"}} {
		_ = p.Do(&Request{Cmds: [][]byte{resp.AppendCommand(nil, words...)}, Sink: &Gathered{}})
	}
	select {
	case got := <-told:
		if got != client.login() {
			t.Errorf("told of %v", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("nobody is told that a password is not valid any more")
	}
}

// TestDeletedUserIsTold: the clients of a user that is deleted hear of it whichever connections they share.
func TestDeletedUserIsTold(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	for user, of := range map[string]Purpose{"reads": Commands, "writes": Writes, "scripts": Scripts} {
		n := newNode(t, targetOf(t, s), NodeOptions{})
		told := make(chan Identity, 100)
		n.OnRefused(func(id Identity, _ *ReplyError) { told <- id })
		s.Do(t, "ACL", "SETUSER", user, "on", ">one", "+@all")
		p, err := n.Open(context.Background(), Identity{User: user, Password: "one", Proto: 2, For: of})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		s.Do(t, "ACL", "DELUSER", user)
		select {
		case got := <-told:
			if want := (Identity{User: user, Password: "one"}); got != want {
				t.Errorf("%s: told of %v", user, got)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: nobody is told that the user was deleted", user)
		}
	}
}

// TestLossOfWhatMakesThingsQuickerIsNotTold: a password that is over ends no client that has a connection still.
func TestLossOfWhatMakesThingsQuickerIsNotTold(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "alice", "on", ">one", "+@all")
	n := newNode(t, targetOf(t, s), NodeOptions{})
	told := make(chan Identity, 100)
	n.OnRefused(func(id Identity, _ *ReplyError) { told <- id })
	id := Identity{User: "alice", Password: "one", Proto: 2}
	commands, err := n.Open(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer commands.Release()
	id.For = Writes
	writes, err := n.Open(context.Background(), id)
	if err != nil || writes == commands {
		t.Fatal(err)
	}
	defer writes.Release()
	var number Gathered
	if err := writes.Do(&Request{Cmds: [][]byte{resp.AppendCommand(nil, "CLIENT", "ID")}, Sink: &number}); err != nil {
		t.Fatal(err)
	}
	s.Do(t, "ACL", "SETUSER", "alice", "resetpass", ">two")
	s.Do(t, "CLIENT", "KILL", "ID", strings.Trim(string(number), ":\r\n"))
	for end := time.Now().Add(20 * time.Second); Refused(writes.state().cause) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("Redis does not refuse the connection for writes")
		}
	}
	if len(told) > 0 {
		t.Errorf("told of %v", <-told)
	}
	s.Do(t, "CLIENT", "KILL", "USER", "alice")
	select {
	case <-told:
	case <-time.After(20 * time.Second):
		t.Error("nobody is told that a password is not valid any more")
	}
}
