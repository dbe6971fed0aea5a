package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// collect is a Sink that keeps everything.
type collect struct{ got []byte }

func (c *collect) Reply(p []byte) { c.got = append(c.got, p...) }

// client is one session as the pipe sees it.
type client struct {
	req  Request
	sink collect
}

// do sends commands, each a list of words, in one request.
func (c *client) do(p *Pipe, cmds ...[]string) (string, error) {
	c.req.Sink, c.req.Cmds, c.sink.got = &c.sink, c.req.Cmds[:0], c.sink.got[:0]
	for _, words := range cmds {
		c.req.Cmds = append(c.req.Cmds, resp.AppendCommand(nil, words...))
	}
	err := p.Do(&c.req)
	return string(c.sink.got), err
}

// expect fails the test unless the replies are exactly want.
func expect(t *testing.T, p *Pipe, want string, cmds ...[]string) {
	t.Helper()
	var c client
	got, err := c.do(p, cmds...)
	if err != nil || got != want {
		t.Errorf("%.100q: got %.200q, %v; want %.200q", cmds, got, err, want)
	} else if c.req.Replied != len(cmds) {
		t.Errorf("%.100q: Replied is %d", cmds, c.req.Replied)
	}
}

// dialTime is long enough for a busy machine.
const dialTime = 10 * time.Second

func newNode(t *testing.T, target Target, o NodeOptions) *Node {
	t.Helper()
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTime)
	o.Logger = slog.New(slog.DiscardHandler)
	n := NewNode(target, o)
	t.Cleanup(n.Close)
	return n
}

func open(t *testing.T, n *Node, id Identity) *Pipe {
	t.Helper()
	p, err := n.Open(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}

func private(t *testing.T, n *Node, id Identity) *Pipe {
	t.Helper()
	p, err := n.Private(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}

// eventually tries until ok, for as long as a loaded machine may need.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestEveryClientGetsItsOwnReplies(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{MaxInflight: 16 << 10})
	pipes := []*Pipe{open(t, n, Identity{Proto: 2}), open(t, n, Identity{Proto: 3})}
	var wg sync.WaitGroup
	for id := range 64 {
		wg.Go(func() {
			var c client
			for round := range 100 {
				var cmds [][]string
				want := ""
				for i := range 1 + (id+round)%20 {
					word := fmt.Sprintf("%d:%d:%d", id, round, i)
					if (id+i)%7 == 0 {
						word = string(bytes.Repeat([]byte(word), 300))
					}
					cmds = append(cmds, []string{"ECHO", word})
					want += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
				}
				got, err := c.do(pipes[id%2], cmds...)
				if err != nil || got != want {
					t.Errorf("client %d: got %.100q, %v", id, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestBigValues(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	value := string(bytes.Repeat([]byte("0123456789abcde\n"), 3<<16)) // 3 MiB
	reply := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
	for name, p := range map[string]*Pipe{
		"shared":  open(t, n, Identity{Proto: 2}),
		"private": private(t, n, Identity{Proto: 3}),
	} {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			for id := range 4 {
				wg.Go(func() {
					key := fmt.Sprint(name, id)
					expect(t, p, "$1\r\na\r\n+OK\r\n$1\r\nb\r\n", []string{"ECHO", "a"}, []string{"SET", key, value}, []string{"ECHO", "b"})
					for range 3 {
						expect(t, p, ":1\r\n"+reply+reply+":1\r\n", []string{"EXISTS", key}, []string{"GET", key}, []string{"GET", key}, []string{"EXISTS", key})
					}
				})
			}
			wg.Wait()
		})
	}
}

// pieces is a Sink that notes the longest piece it got.
type pieces struct{ total, longest int }

func (s *pieces) Reply(p []byte) { s.total += len(p); s.longest = max(s.longest, len(p)) }

func TestPrivatePipeStreams(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := private(t, newNode(t, targetOf(t, s), NodeOptions{}), Identity{Proto: 2})
	const size = 20 << 20
	s.Do(t, "SETRANGE", "big", size-1, "x")
	var sink pieces
	r := Request{Cmds: [][]byte{resp.AppendCommand(nil, "GET", "big")}, Sink: &sink}
	if err := p.Do(&r); err != nil {
		t.Fatal(err)
	}
	if want := size + len("$20971520\r\n\r\n"); sink.total != want || sink.longest > readBuffer || r.Torn {
		t.Fatalf("got %d bytes, the longest piece %d, torn %v; want %d bytes", sink.total, sink.longest, r.Torn, want)
	}
}

func TestRESP3AndPushes(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	p2, p3 := open(t, n, Identity{Proto: 2}), open(t, n, Identity{Proto: 3})
	set := []string{"HSET", "h", "f", "v"}
	get := []string{"HGETALL", "h"}
	const hash = "%1\r\n$1\r\nf\r\n$1\r\nv\r\n"
	expect(t, p3, ":1\r\n"+hash, set, get)
	expect(t, p2, ":0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n", set, get)

	// Invalidations come as pushes, within and outside requests: all dropped.
	for _, p := range []*Pipe{p3, private(t, n, Identity{Proto: 3})} {
		expect(t, p, "+OK\r\n:0\r\n"+hash+":0\r\n"+hash, []string{"CLIENT", "TRACKING", "ON"}, set, get, set, get)
		expect(t, p2, ":0\r\n", set)
		expect(t, p, hash, get)
	}
}

func TestDatabases(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	expect(t, open(t, n, Identity{Proto: 2, DB: 3}), "+OK\r\n", []string{"SET", "k", "3"})
	expect(t, open(t, n, Identity{Proto: 3, DB: 3}), "$1\r\n3\r\n", []string{"GET", "k"})
	expect(t, open(t, n, Identity{Proto: 3}), "_\r\n", []string{"GET", "k"})
	_, err := n.Open(context.Background(), Identity{Proto: 2, DB: 99})
	if re, ok := err.(*ReplyError); !ok || re.Line != "ERR DB index is out of range" {
		t.Fatalf("got %v", err)
	}
}

func TestNothingToDo(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	if err := open(t, n, Identity{Proto: 2}).Do(&Request{}); err != nil {
		t.Fatal(err)
	}
}

func TestMaxInflightMakesOthersWait(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	n := newNode(t, targetOf(t, s), NodeOptions{MaxInflight: 1000})
	p := open(t, n, Identity{Proto: 2})
	s.Stop()
	t.Cleanup(s.Cont)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			word := string(bytes.Repeat([]byte("x"), 300))
			expect(t, p, "$300\r\n"+word+"\r\n", []string{"ECHO", word})
		})
	}
	l := p.link.Load()
	eventually(t, "46 sessions wait", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting == 46 && l.count == 4
	})
	s.Cont()
	wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count != 0 || l.bytes != 0 || l.waiting != 0 {
		t.Fatalf("left over: %d requests, %d bytes, %d waiting", l.count, l.bytes, l.waiting)
	}
}

func TestDoAllocatesNothing(t *testing.T) {
	p := open(t, newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{}), Identity{Proto: 2})
	r := Request{Cmds: [][]byte{resp.AppendCommand(nil, "PING")}, Sink: &count{}}
	if n := testing.AllocsPerRun(1000, func() {
		if err := p.Do(&r); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Fatalf("%v allocations for each Do", n)
	}
}

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	cause := errors.New("why")
	for err, want := range map[error]string{
		&ReplyError{Line: "NOAUTH no"}: "NOAUTH no",
		&NotSentError{Cause: cause}:    "upstream unavailable: why",
		&LostError{Cause: cause}:       "upstream connection lost, the command's outcome is unknown: why",
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}
