package upstream

import (
	"context"
	"net"
	"testing"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// pipeTo is a pipe over a connection, whose other end is far.
func pipeTo(t *testing.T) (p *Pipe, l *link, far net.Conn) {
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	p, l = &Pipe{}, newLink(near, true, defaultMaxInflight)
	p.link.Store(l)
	return p, l, far
}

// A session that joins writes nothing: while nobody writes there is nothing to join, and the writer never passes its
// duty on to a session that has joined, which may be waiting for another Redis.
func TestJoin(t *testing.T) {
	t.Parallel()
	p, l, far := pipeTo(t)
	get := [][]byte{resp.AppendCommand(nil, "GET", "k")}
	requests := make([]*Request, 3)
	for i := range requests {
		requests[i] = &Request{Cmds: get, Sink: new(Gathered)}
	}
	if p.Join(requests[0]) {
		t.Fatal("joined, though nobody writes")
	}
	wrote, ended := make(chan error, 1), make(chan error, 1)
	go func() { wrote <- p.Do(requests[0]) }()
	waitFor(t, "the write, which goes on since nobody reads", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.writer != nil
	})
	if !p.Join(requests[1]) {
		t.Fatal("not joined, though another one writes")
	}
	go func() { ended <- l.serve() }()
	if _, err := far.Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	far.Write([]byte("$1\r\na\r\n")) // the writer's, which is at the second write now, or about to be
	if _, err := far.Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	far.Write([]byte("$1\r\nb\r\n"))
	if err := p.Wait(requests[1]); err != nil || string(*requests[1].Sink.(*Gathered)) != "$1\r\nb\r\n" {
		t.Errorf("got %q and %v", *requests[1].Sink.(*Gathered), err)
	}
	l.fail(context.Canceled)
	<-ended
	if p.Join(requests[2]) {
		t.Error("joined a connection that has ended")
	}
}

// Nobody joins a writer that has its own replies and still writes for others: else it would write for as long as others
// join.
func TestJoinEnds(t *testing.T) {
	t.Parallel()
	p, l, far := pipeTo(t)
	request := func() *Request {
		return &Request{Cmds: [][]byte{resp.AppendCommand(nil, "GET", "k")}, Sink: new(Gathered)}
	}
	inWrite := func(number uint64) {
		waitFor(t, "the next write", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.writer != nil && l.writes == number
		})
	}
	take := func() {
		if _, err := far.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	wrote, joined := make(chan error, 1), request()
	writer := request()
	go func() { wrote <- p.Do(writer) }()
	inWrite(1)
	if !p.Join(joined) {
		t.Fatal("not joined, though another one writes")
	}
	go l.serve()
	take()
	inWrite(2)
	far.Write([]byte("$1\r\na\r\n"))
	waitFor(t, "the writer's own reply", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.writer != nil && l.writer.served()
	})
	if p.Join(request()) {
		t.Fatal("joined a writer that has its replies")
	}
	take()
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	far.Write([]byte("$1\r\nb\r\n"))
	if err := p.Wait(joined); err != nil {
		t.Error(err)
	}
}
