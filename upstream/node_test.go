package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// connections counts what Redis has by CLIENT LIST, with the filter's words.
func connections(t *testing.T, c redis.Conn, filter string) int {
	t.Helper()
	list, err := redis.String(c.Do("CLIENT", "LIST"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(list) {
		if strings.Contains(line, filter) {
			n++
		}
	}
	return n
}

// refusal fails the test unless err is Redis' own line.
func refusal(t *testing.T, err error, line string) {
	t.Helper()
	var re *ReplyError
	if !errors.As(err, &re) || re.Line != line {
		t.Errorf("got %T %v, want %q", err, err, line)
	}
}

const wrongPass = "WRONGPASS invalid username-password pair or user is disabled."

func TestIdentities(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--requirepass geheim", "--user", "ann", "on", ">a b", "~app:*", "+@all")
	n := newNode(t, targetOf(t, s), NodeOptions{})
	ctx := context.Background()
	ok := []struct {
		id   Identity
		user string
	}{
		{Identity{Proto: 2, Password: "geheim"}, "default"},
		{Identity{Proto: 3, Password: "geheim", DB: 2}, "default"},
		{Identity{Proto: 2, User: "ann", Password: "a b", DB: 1}, "ann"},
		{Identity{Proto: 3, User: "ann", Password: "a b"}, "ann"},
	}
	for _, c := range ok {
		expect(t, open(t, n, c.id), fmt.Sprintf("$%d\r\n%s\r\n", len(c.user), c.user), []string{"ACL", "WHOAMI"})
	}
	for _, proto := range []int{2, 3} {
		_, err := n.Open(ctx, Identity{Proto: proto, User: "ann", Password: "wrong", DB: 1})
		refusal(t, err, wrongPass)
		_, err = n.Open(ctx, Identity{Proto: proto, Password: "wrong"})
		refusal(t, err, wrongPass)
		_, err = n.Private(ctx, Identity{Proto: proto, Password: "wrong"})
		refusal(t, err, wrongPass)
	}
	for db := range 2 {
		_, err := n.Open(ctx, Identity{Proto: 2, DB: db})
		refusal(t, err, "NOAUTH Authentication required.")
	}
	_, err := n.Open(ctx, Identity{Proto: 3})
	if err == nil || !strings.HasPrefix(err.Error(), "NOAUTH HELLO must be called with the client already authenticated") {
		t.Errorf("got %v", err)
	}
}

func TestRefusedWhileInUse(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	admin := s.Dial(t)
	acl := func(args ...any) {
		t.Helper()
		if _, err := admin.Do("ACL", args...); err != nil {
			t.Fatal(err)
		}
	}
	acl("SETUSER", "bob", "on", ">old", "+@all", "~*")
	n := newNode(t, targetOf(t, s), NodeOptions{})
	id := Identity{Proto: 3, User: "bob", Password: "old"}
	p := open(t, n, id)
	expect(t, p, "+PONG\r\n", []string{"PING"})
	acl("DELUSER", "bob")
	var c client
	eventually(t, "bob is refused", func() bool {
		_, err := c.do(p, []string{"PING"})
		return Refused(err) != nil
	})
	_, err := n.Open(context.Background(), id)
	refusal(t, err, wrongPass)
	eventually(t, "nobody tries any more", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.phase == resting
	})
	acl("SETUSER", "bob", "on", ">old", "+@all", "~*")
	eventually(t, "bob is let in", func() bool { // it is waited for a second, which a busy machine may need
		got, err := c.do(p, []string{"PING"})
		return err == nil && got == "+PONG\r\n"
	})
	open(t, n, id)
}

func TestOpenDialsOnce(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	n := newNode(t, targetOf(t, s), NodeOptions{})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			p, err := n.Open(context.Background(), Identity{Proto: 2, DB: 7})
			if err != nil {
				t.Error(err)
				return
			}
			expect(t, p, "+PONG\r\n", []string{"PING"})
			p.Release()
		})
	}
	wg.Wait()
	if got := connections(t, s.Dial(t), " db=7 "); got != 1 {
		t.Fatalf("%d connections", got)
	}
}

func TestIdlePipesAreBounded(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	admin := s.Dial(t)
	n := newNode(t, targetOf(t, s), NodeOptions{})
	used := open(t, n, Identity{Proto: 2, DB: 1})
	for i := range mostIdle + 6 {
		id := Identity{Proto: 2 + i%2, DB: 2 + i/2%14, For: []Purpose{Commands, Writes, Scripts}[i/28]}
		p, err := n.Open(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
		again, err := n.Open(context.Background(), id)
		if err != nil || again != p {
			t.Fatalf("the idle pipe was not used again (%v)", err)
		}
		p.Release()
		expect(t, used, "+PONG\r\n", []string{"PING"})
	}
	eventually(t, "the one in use and idle ones are left", func() bool {
		return connections(t, admin, " db=")-connections(t, admin, " db=0 ") == 1+mostIdle
	})
	// Redis may end an idle connection: it is forgotten, not made again.
	for _, db := range []string{" db=8 ", " db=9 "} {
		if connections(t, admin, db) == 0 {
			t.Errorf("no connection with%s", db)
		}
	}
	if _, err := admin.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the idle ones are forgotten", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.shared) == 1 && len(n.idle) == 0
	})
	eventually(t, "the one in use is made again", func() bool {
		var c client
		_, err := c.do(used, []string{"PING"})
		return err == nil
	})
}

// A private pipe that was given back is the next client's, unless its connection has ended or it has been idle for long; one that was
// aside is closed.
func TestPrivatePipesAreUsedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	id := Identity{Proto: 2}
	take := func(from func(*Node, context.Context, Identity) (*Pipe, error), id Identity) *Pipe {
		t.Helper()
		p, err := from(n, context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, p, "+PONG\r\n", []string{"PING"})
		return p
	}
	one, two := take((*Node).Private, id), take((*Node).Private, id)
	if one == two {
		t.Fatal("two clients have one private pipe")
	}
	one.Release()
	other := take((*Node).Private, Identity{Proto: 2, DB: 1})
	if again := take((*Node).Private, id); again != one || other == one {
		t.Error("the one that was given back is not the next client's")
	}
	one.Release()
	one.dropLink(ErrLeft) // only now: while the pipe is in use it would connect again, and could then be handed out
	if again := take((*Node).Private, id); again == one {
		t.Error("a pipe without a connection was handed out")
	}
	two.Release()
	n.dropUnused(two)
	if again := take((*Node).Private, id); again == two {
		t.Error("a pipe that had been idle for long was handed out")
	}
	n.dropUnused(other) // it is in use
	expect(t, other, "+PONG\r\n", []string{"PING"})
	aside := take((*Node).Aside, id)
	aside.Release()
	if aside.ctx.Err() == nil || take((*Node).Private, id) == aside {
		t.Error("a question's own connection is kept")
	}
}

func TestOpenWithoutRedis(t *testing.T) {
	t.Parallel()
	n := newNode(t, Target{Network: "tcp", Addr: net.JoinHostPort("127.0.0.1", fmt.Sprint(testredis.FreePort(t)))}, NodeOptions{})
	var unsent *NotSentError
	for range 100 {
		if _, err := n.Open(context.Background(), Identity{Proto: 3}); !errors.As(err, &unsent) || !strings.Contains(err.Error(), "refused") {
			t.Fatalf("got %v", err)
		}
	}
	if err := n.Authenticate(context.Background(), "", "ann", "x"); !errors.As(err, &unsent) {
		t.Fatalf("got %v", err)
	}
}

// silent is an address where connections are taken and nothing answers.
func silent(t *testing.T) Target {
	return fakeRedis(t, func(_ int, c net.Conn) {
		for b := make([]byte, 1); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	})
}

func TestOpenGivesUp(t *testing.T) {
	t.Parallel()
	target := silent(t)
	var unsent *NotSentError
	n := newNode(t, target, NodeOptions{DialTimeout: 50 * time.Millisecond})
	if _, err := n.Open(context.Background(), Identity{Proto: 3}); !errors.As(err, &unsent) {
		t.Fatalf("got %v", err)
	}
	n = newNode(t, target, NodeOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := n.Open(ctx, Identity{Proto: 3}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if err := n.Authenticate(ctx, "", "", "x"); !errors.As(err, &unsent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--user", "ann", "on", ">secret", "+@all", "~*", "--user", "eve", "on", "nopass", "+@all", "~*")
	admin := s.Dial(t)
	n := newNode(t, targetOf(t, s), NodeOptions{})
	ctx := context.Background()
	ask := func(user, password, want string) {
		t.Helper()
		err := n.Authenticate(ctx, "", user, password)
		if want == "" && err != nil {
			t.Errorf("%s: %v", user, err)
		} else if want != "" {
			refusal(t, err, want)
		}
	}
	ask("ann", "secret", "")
	ask("ann", "Secret", wrongPass)
	ask("eve", "anything", "")
	ask("nobody", "x", wrongPass)
	ask("", "x", "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	ask("ann", "secret", "")
	if _, err := admin.Do("ACL", "DELUSER", "ann"); err != nil { // Redis closes the connection
		t.Fatal(err)
	}
	ask("ann", "secret", wrongPass)
	ask("eve", "", "")
	s.Restart()
	ask("ann", "secret", "")
	if got := connections(t, s.Dial(t), "cmd=auth"); got != 1 {
		t.Errorf("%d connections for AUTH", got)
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if err := n.Authenticate(ctx, "", "ann", []string{"secret", "wrong"}[i%2]); (err == nil) != (i%2 == 0) {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func TestAuthenticateEndsWithItsContextAndTheNode(t *testing.T) {
	t.Parallel()
	n := newNode(t, silent(t), NodeOptions{})
	result, beside := make(chan error), make(chan error)
	waiting := func(want int) {
		t.Helper()
		eventually(t, "it waits for Redis", func() bool {
			n.auths.turns.mu.Lock()
			defer n.auths.turns.mu.Unlock()
			return n.auths.turns.taken == want
		})
	}
	go func() { result <- n.Authenticate(context.Background(), "", "", "x") }()
	waiting(1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { beside <- n.Authenticate(ctx, "", "", "y") }()
	waiting(2)
	cancel()
	if err := <-beside; !errors.Is(err, context.Canceled) {
		t.Errorf("the one beside it got %v", err)
	}
	n.Close()
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// A pipe that notices late that nobody uses it, and has been closed as an idle one by then, takes nothing from the newer one of its identity.
func TestForgottenPipeLeavesTheNewerOne(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	id := Identity{Proto: 2}
	old, err := n.Open(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	old.Release()
	if !n.closeIdle("") {
		t.Fatal("the pipe is not idle")
	}
	newer := open(t, n, id)
	if !n.forgetIdle(old) {
		t.Error("the old pipe is used")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shared[id] != newer {
		t.Error("nobody knows the newer pipe any more")
	}
}
