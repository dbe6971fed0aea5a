package upstream

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// recorder is a Receiver that remembers.
type recorder struct {
	mu    sync.Mutex
	heard strings.Builder
	ended chan error
}

func newRecorder() *recorder { return &recorder{ended: make(chan error, 1)} }

func (e *recorder) Received(p []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard.Write(p)
}

func (e *recorder) Ended(err error) { e.ended <- err }

func (e *recorder) wait(t *testing.T, want string) {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		got := e.heard.String()
		e.mu.Unlock()
		if got == want {
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.Fatalf("heard %q, want %q", e.heard.String(), want)
}

func dedicate(t *testing.T, n *Node, id Identity) (*Dedicated, *recorder) {
	t.Helper()
	e := newRecorder()
	p, err := n.Dedicate(context.Background(), id, e)
	if err != nil {
		t.Fatal(err)
	}
	return p, e
}

func TestDedicatedIsReusedByItsIdentity(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	p, e := dedicate(t, n, Identity{Proto: 2})
	if p.RedisID() == 0 {
		t.Error("no CLIENT ID")
	}
	if err := p.Write(resp.AppendCommand(nil, "PING")); err != nil {
		t.Fatal(err)
	}
	e.wait(t, "+PONG\r\n")
	p.GiveBack()
	other, _ := dedicate(t, n, Identity{Proto: 2, DB: 1})
	again, e2 := dedicate(t, n, Identity{Proto: 2})
	if other == p || again != p {
		t.Errorf("other database got the connection: %v; the same identity did: %v", other == p, again == p)
	}
	if err := again.Write(resp.AppendCommand(nil, "ECHO", "x")); err != nil {
		t.Fatal(err)
	}
	e2.wait(t, "$1\r\nx\r\n")
	e.wait(t, "+PONG\r\n")
}

func TestDedicatedEnds(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	n := newNode(t, targetOf(t, redis), NodeOptions{})
	used, e := dedicate(t, n, Identity{Proto: 3})
	idle, silent := dedicate(t, n, Identity{Proto: 3})
	idle.GiveBack()
	closed, quiet := dedicate(t, n, Identity{Proto: 2})
	closed.Close()
	redis.Kill()
	if err := <-e.ended; err == nil {
		t.Error("no error")
	}
	used.Close()
	eventually(t, "the idle one has ended", func() bool { _, idle := n.DedicatedCount(); return idle == 0 })
	redis.Restart()
	for range 3 {
		p, _ := dedicate(t, n, Identity{Proto: 3})
		if p == idle || p == used {
			t.Error("a dead connection was dedicated")
		}
	}
	for _, e := range []*recorder{silent, quiet} {
		select {
		case err := <-e.ended:
			t.Errorf("who had let go was told %v", err)
		default:
		}
	}
}

// What comes on an idle connection, as a late reply would, must reach nobody: the connection is not used again.
func TestDedicatedIdleReceivesNothing(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	n := newNode(t, targetOf(t, redis), NodeOptions{})
	p, _ := dedicate(t, n, Identity{Proto: 2})
	if err := p.Write(resp.AppendCommand(nil, "BLPOP", "list", "0")); err != nil {
		t.Fatal(err)
	}
	p.GiveBack()
	redis.Do(t, "RPUSH", "list", "late")
	eventually(t, "the reply has come", func() bool {
		_, idle := n.DedicatedCount()
		return idle == 0
	})
	again, e := dedicate(t, n, Identity{Proto: 2})
	if again == p {
		t.Error("a connection with a stray reply was dedicated")
	}
	e.wait(t, "")
}

func TestIdlePinsAreBounded(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	n := newNode(t, targetOf(t, redis), NodeOptions{})
	var all []*Dedicated
	for range mostIdle + 10 {
		p, _ := dedicate(t, n, Identity{Proto: 2})
		all = append(all, p)
	}
	for _, p := range all {
		p.GiveBack()
	}
	if _, got := n.DedicatedCount(); got != mostIdle {
		t.Errorf("%d idle connections, want %d", got, mostIdle)
	}
}

func TestDedicatedRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	_, err := n.Dedicate(context.Background(), Identity{Proto: 2, User: "nobody", Password: "x"}, newRecorder())
	if Refused(err) == nil || !strings.HasPrefix(err.Error(), "WRONGPASS") {
		t.Errorf("got %v", err)
	}
}

// While a script runs Redis tells nobody its number, but a transaction may be begun.
func TestDedicatedWhileBusy(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, "--lua-time-limit 10")
	n := newNode(t, targetOf(t, redis), NodeOptions{})
	looping := redis.Dial(t)
	if err := looping.Send("EVAL", "while true do end", 0); err != nil {
		t.Fatal(err)
	}
	if err := looping.Flush(); err != nil {
		t.Fatal(err)
	}
	other := redis.Dial(t)
	eventually(t, "Redis is busy", func() bool {
		_, err := other.Do("PING")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	p, e := dedicate(t, n, Identity{Proto: 2})
	if err := p.Write(resp.AppendCommand(nil, "MULTI")); err != nil {
		t.Fatal(err)
	}
	e.wait(t, "+OK\r\n")
	redis.Do(t, "SCRIPT", "KILL")
}

// What nobody has used for long is closed; what is in use is not.
func TestUnusedDedicatedIsClosed(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	used, _ := dedicate(t, n, Identity{Proto: 2})
	unused, _ := dedicate(t, n, Identity{Proto: 2})
	unused.GiveBack()
	for _, p := range []*Dedicated{used, unused} {
		p.unused.Reset(0)
	}
	waitFor(t, "it is closed", func() bool {
		used, idle := n.DedicatedCount()
		return used == 1 && idle == 0
	})
	used.GiveBack()
	if used, idle := n.DedicatedCount(); used != 0 || idle != 1 {
		t.Errorf("%d are in use, %d are idle", used, idle)
	}
}
