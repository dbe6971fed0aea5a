package upstream

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

func dedicate(t *testing.T, n *Node, id Identity) *Dedicated {
	t.Helper()
	p, err := n.Dedicate(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// expect has Redis answer a command so.
func (p *Dedicated) expect(t *testing.T, want string, words ...string) {
	t.Helper()
	if err := p.Write(resp.AppendCommand(nil, words...)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	p.SetReadDeadline(time.Now().Add(time.Minute))
	defer p.SetReadDeadline(time.Time{})
	for n := 0; n < len(got); {
		more, err := p.Read(got[n:])
		if n += more; err != nil {
			t.Fatalf("heard %q, want %q: %v", got[:n], want, err)
		}
	}
	if string(got) != want {
		t.Fatalf("heard %q, want %q", got, want)
	}
}

// ends waits until the connection is over, closes it, and returns why it is.
func (p *Dedicated) ends(t *testing.T) error {
	t.Helper()
	defer p.Close()
	n, err := p.Read(make([]byte, 10))
	if n != 0 || err == nil || err == ErrInterrupted {
		t.Error(n, err)
	}
	return err
}

func TestDedicatedIsReusedByItsIdentity(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	p := dedicate(t, n, Identity{Proto: 2})
	if p.RedisID() == 0 {
		t.Error("no CLIENT ID")
	}
	p.expect(t, "+PONG\r\n", "PING")
	p.GiveBack()
	other := dedicate(t, n, Identity{Proto: 2, DB: 1})
	again := dedicate(t, n, Identity{Proto: 2})
	if other == p || again != p {
		t.Errorf("other database got the connection: %v; the same identity did: %v", other == p, again == p)
	}
	again.expect(t, "$1\r\nx\r\n", "ECHO", "x")
}

func TestDedicatedEnds(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	n := newNode(t, targetOf(t, redis), NodeOptions{})
	used, idle := dedicate(t, n, Identity{Proto: 3}), dedicate(t, n, Identity{Proto: 3})
	idle.GiveBack()
	redis.Kill()
	used.ends(t)
	redis.Restart()
	for range 3 {
		p := dedicate(t, n, Identity{Proto: 3})
		if p == idle || p == used {
			t.Error("a dead connection was dedicated")
		}
		p.expect(t, "+PONG\r\n", "PING")
	}
	if used, idle := n.DedicatedCount(); used != 3 || idle != 0 {
		t.Errorf("%d are in use, %d are idle", used, idle)
	}
}

// Interrupt and Close end a read that waits; after Interrupt reads go on.
func TestDedicatedReadIsEnded(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	p := dedicate(t, n, Identity{Proto: 2})
	read := func() error {
		_, err := p.Read(make([]byte, 10))
		return err
	}
	ended := make(chan error)
	go func() { ended <- read() }()
	p.Interrupt()
	if err := <-ended; err != ErrInterrupted {
		t.Error(err)
	}
	if err := read(); err != ErrInterrupted {
		t.Error("the next one:", err)
	}
	p.SetReadDeadline(time.Time{})
	p.SetWriteDeadline(time.Time{})
	p.expect(t, "+PONG\r\n", "PING")
	go func() { ended <- read() }()
	p.Close()
	if err := <-ended; err == nil || err == ErrInterrupted {
		t.Error(err)
	}
}

// What comes on an idle connection, as a late reply would, must reach nobody: the connection is not used again. So it is
// with TLS, which may have read more than was asked for.
func TestDedicatedIdleReceivesNothing(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	n := newNode(t, targetOf(t, redis), NodeOptions{})
	p := dedicate(t, n, Identity{Proto: 2})
	if err := p.Write(resp.AppendCommand(nil, "BLPOP", "list", "0")); err != nil {
		t.Fatal(err)
	}
	p.GiveBack()
	redis.Do(t, "RPUSH", "list", "late")
	again := dedicate(t, n, Identity{Proto: 2})
	if again == p {
		t.Error("a connection with a stray reply was dedicated")
	}
	again.expect(t, "+PONG\r\n", "PING")
}

func TestIdlePinsAreBounded(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	n := newNode(t, targetOf(t, redis), NodeOptions{})
	var all []*Dedicated
	for range mostIdle + 10 {
		p := dedicate(t, n, Identity{Proto: 2})
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
	_, err := n.Dedicate(context.Background(), Identity{Proto: 2, User: "nobody", Password: "x"})
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
	p := dedicate(t, n, Identity{Proto: 2})
	p.expect(t, "+OK\r\n", "MULTI")
	redis.Do(t, "SCRIPT", "KILL")
}

// What nobody has used for long is closed; what is in use is not.
func TestUnusedDedicatedIsClosed(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	used := dedicate(t, n, Identity{Proto: 2})
	unused := dedicate(t, n, Identity{Proto: 2})
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
