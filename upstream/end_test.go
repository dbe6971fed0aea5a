package upstream

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

type collected struct{ bytes.Buffer }

func (c *collected) Reply(p []byte) { c.Write(p) }

// TestEndedRequestsStayPending: requests that are left while Redis hangs end at once, and what they had asked for reaches nobody
// else; those that are not left get their own replies.
func TestEndedRequestsStayPending(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	n := newNode(t, targetOf(t, server), NodeOptions{})
	const each = 50
	for i := range 2 * each {
		server.Do(t, "SET", "k"+strconv.Itoa(i), "v"+strconv.Itoa(i))
	}
	p, err := n.Open(context.Background(), Identity{Proto: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	server.Stop()
	var leaving, staying sync.WaitGroup
	requests := make([]*Request, 2*each)
	for i := range requests {
		var got collected
		key := "k" + strconv.Itoa(i)
		r := &Request{Cmds: [][]byte{resp.AppendCommand(nil, "GET", key), resp.AppendCommand(nil, "GET", key)}, Sink: &got, Turn: uint64(i)}
		requests[i] = r
		who := &staying
		if i%2 == 0 {
			who = &leaving
		}
		who.Go(func() {
			err := p.Do(r)
			if r.Turn%2 == 0 {
				var lost *LostError
				if !errors.As(err, &lost) || !errors.Is(err, ErrLeft) || got.Len() > 0 {
					t.Errorf("request %d, left: %v, %q", r.Turn, err, got.String())
				}
				return
			}
			value := string(resp.AppendBulkString(nil, "v"+strconv.Itoa(int(r.Turn))))
			if err != nil || got.String() != value+value {
				t.Errorf("request %d: %v, %q", r.Turn, err, got.String())
			}
		})
	}
	eventually(t, "all are under way", func() bool {
		l := p.link.Load()
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.count == len(requests)
	})
	for i := 0; i < len(requests); i += 2 {
		requests[i].End(uint64(i)+1, ErrTimeout) // another one's turn
		requests[i].End(uint64(i), ErrLeft)
		requests[i].End(uint64(i), ErrLeft)
	}
	leaving.Wait() // while Redis hangs
	server.Cont()
	staying.Wait()
	var got collected
	if err := p.Do(&Request{Cmds: [][]byte{resp.AppendCommand(nil, "GET", "k1")}, Sink: &got}); err != nil || got.String() != "$2\r\nv1\r\n" {
		t.Errorf("afterwards: %v, %q", err, got.String())
	}
}

// TestAskIsGivenUp: the proxy's own questions have a deadline.
func TestAskIsGivenUp(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	n := newNode(t, targetOf(t, server), NodeOptions{})
	for _, open := range []func(context.Context, Identity) (*Pipe, error){n.Open, n.Aside} {
		p, err := open(context.Background(), Identity{Proto: 2})
		if err != nil {
			t.Fatal(err)
		}
		server.Stop()
		_, err = p.Ask(&Request{Cmds: [][]byte{resp.AppendCommand(nil, "PING")}}, 20*time.Millisecond)
		server.Cont()
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("a question to a Redis that hangs: %v", err)
		}
		p.Release()
	}
}

// TestEndRacesReplies: whatever comes first, a request that is ended while its replies come is done or left, and its
// neighbours get theirs.
func TestEndRacesReplies(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	n := newNode(t, targetOf(t, server), NodeOptions{})
	p, err := n.Open(context.Background(), Identity{Proto: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			r := &Request{}
			for i := range uint64(2000) {
				text := strconv.Itoa(worker) + "-" + strconv.FormatUint(i, 10)
				want := string(resp.AppendBulkString(nil, text))
				var got collected
				r.Cmds, r.Sink, r.Turn = [][]byte{resp.AppendCommand(nil, "ECHO", text)}, &got, i
				var ender sync.WaitGroup
				if i%3 == 0 {
					r := r
					ender.Go(func() { r.End(i, ErrLeft) })
				}
				err := p.Do(r)
				switch {
				case err == nil && got.String() != want:
					t.Errorf("got %q, want %q", got.String(), want)
				case err != nil && !Ended(err):
					t.Error(err)
				}
				ender.Wait()
				if err != nil {
					r = &Request{}
				}
			}
		})
	}
	all.Wait()
}

// TestEndedWhileItWrites: who writes to a Redis that takes nothing waits no longer than others do. One that has just left does not
// break the connection for others.
func TestEndedWhileItWrites(t *testing.T) {
	conn, peer := net.Pipe()
	defer peer.Close()
	l := newLink(conn, true, 1<<20)
	var over sync.WaitGroup
	over.Go(func() { _ = l.serve() })
	r := &Request{Cmds: [][]byte{resp.AppendCommand(nil, "PING")}, Sink: &collected{}, Turn: 1}
	r.prepare()
	var err error
	over.Go(func() { err = l.do(r) })
	for start, within := time.Now(), false; !within; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		within = l.writer == r
		l.mu.Unlock()
		if time.Since(start) > time.Minute {
			t.Fatal("it does not write")
		}
	}
	r.End(1, ErrLeft)
	r.End(1, ErrLeft)
	if l.dead.Load() {
		t.Fatal("the connection was broken for one that left")
	}
	r.End(1, ErrTimeout)
	over.Wait()
	if !Ended(err) {
		t.Errorf("got %v", err)
	}
}
