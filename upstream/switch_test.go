package upstream

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// TestSwitch: when the master has changed, what was under way on a frozen former one ends at once, with what is known of
// it; connections are made anew to the new one; and a hook runs before that.
func TestSwitch(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	target := follow(t, g)
	n := newNode(t, target, NodeOptions{})
	c := newControl(t, target)
	var hooks atomic.Int64
	c.OnSwitch(func() { hooks.Add(1) })
	useControl(t, c)
	p, err := n.Open(context.Background(), Identity{Proto: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if got := ask1(t, p, "SET", "k", "v"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	if err := n.Authenticate(context.Background(), "", "", "x"); Refused(err) == nil { // its connection is to move, too
		t.Fatal(err)
	}
	dedicated := dedicate(t, n, Identity{Proto: 2})

	former := g.Master()
	if kind, addr, switches := n.Upstream(); kind != "sentinel" || addr != former.Addr() || switches != 0 {
		t.Errorf("upstream is %s %s after %d switches", kind, addr, switches)
	}
	g.Hasten()
	former.Stop()
	defer former.Cont()
	underWay := make(chan error)
	go func() {
		underWay <- p.Do(&Request{Cmds: [][]byte{resp.AppendCommand(nil, "INCR", "n")}, Sink: new(sinkText)})
	}()
	var lost *LostError
	if err := <-underWay; !errors.As(err, &lost) || !strings.Contains(err.Error(), former.Addr()+" is no longer the master") {
		t.Errorf("a command under way: %v", err)
	}
	if err := dedicated.ends(t); !strings.Contains(err.Error(), "is no longer the master") {
		t.Errorf("a dedicated connection: %v", err)
	}
	if hooks.Load() != 1 {
		t.Errorf("%d hooks", hooks.Load())
	}
	master := g.AwaitSwitch(former)
	g.Calm()
	waitFor(t, "the pipe is there", func() bool {
		var got sinkText
		err := p.Do(&Request{Cmds: [][]byte{resp.AppendCommand(nil, "SET", "k", "w")}, Sink: &got})
		return err == nil && got.String() == "+OK\r\n"
	})
	waitFor(t, "passwords are asked there", func() bool { return Refused(n.Authenticate(context.Background(), "", "", "x")) != nil })
	waitFor(t, "the control clients are there too", func() bool { return run(controlClientOf(t, c, 0), "PING").Error() == nil })
	useControl(t, c)
	waitFor(t, "scripts run there", func() bool {
		out, err := c.Ints(0, strings.Repeat("0", 40), "return {7}", []string{"k"}, nil, false)
		return err == nil && len(out) == 1 && out[0] == 7
	})
	if _, addr, switches := n.Upstream(); addr != master.Addr() || switches != 1 {
		t.Errorf("at %s after %d switches, the master is %s", addr, switches, master.Addr())
	}
}

// sinkText gathers a reply.
type sinkText struct{ strings.Builder }

func (s *sinkText) Reply(p []byte) { s.Write(p) }

func ask1(t *testing.T, p *Pipe, words ...string) string {
	t.Helper()
	var got sinkText
	if err := p.Do(&Request{Cmds: [][]byte{resp.AppendCommand(nil, words...)}, Sink: &got}); err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	return got.String()
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
