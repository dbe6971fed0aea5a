package main

import (
	"io"
	"net"
	"runtime"
	"sync"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// least is the least proxy whose clients share one connection to each Redis: it sends each command to the one that has the slot of its
// key, finds the end of each reply, and gives each client its replies in order. It has no limits, and ends when a Redis does.
func least(listen string, redis []string) error {
	runtime.GOMAXPROCS(max(1, runtime.NumCPU()/2)) // as lockproxy does
	links := make([]*sharedLink, len(redis))
	for i, addr := range redis {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		links[i] = &sharedLink{Conn: c, asked: make(chan *part, 1<<16)}
		go links[i].read()
	}
	return accept(listen, func(client net.Conn) {
		defer client.Close()
		n := len(links)
		s := &sharing{client: client, links: links, parts: make([]part, n), left: make([][]byte, n), done: make(chan struct{}, n)}
		_ = eachRead(client, s.pass) // the client has gone
	})
}

// eachRead calls do with what has come, until reading fails; do returns what it has not used, because it is no whole frame.
func eachRead(from net.Conn, do func(frames []byte) []byte) error {
	in := make([]byte, 0, 256<<10)
	for len(in) < cap(in) {
		n, err := from.Read(in[len(in):cap(in)])
		if err != nil {
			return err
		}
		in = in[:copy(in, do(in[:len(in)+n]))]
	}
	return io.ErrShortBuffer
}

// sharing is one client.
type sharing struct {
	client net.Conn
	links  []*sharedLink
	parts  []part // of the commands that have come at once, by link
	order  []int  // the links of these commands
	left   [][]byte
	all    []byte // replies, in order
	done   chan struct{}
}

// part is what a client has asked one Redis, and what that has answered.
type part struct {
	commands, replies []byte
	missing           int // replies
	done              chan struct{}
}

// pass has all whole commands answered, and writes the replies.
func (s *sharing) pass(commands []byte) []byte {
	s.order = s.order[:0]
	for one, rest := resp.Cut(commands); len(one) > 0; one, rest = resp.Cut(commands) {
		commands = rest
		at := 0
		if len(s.links) > 1 {
			key, _ := resp.Element(one, 1)
			at = (cluster.Slot(key.Text)*len(s.links) + len(s.links) - 1) / cluster.Slots // as startCluster divides them
		}
		p := &s.parts[at]
		p.commands, p.missing, p.done = append(p.commands, one...), p.missing+1, s.done
		s.order = append(s.order, at)
	}
	asked := 0
	for i := range s.parts {
		if s.parts[i].missing > 0 {
			asked++
			s.links[i].send(&s.parts[i])
		}
	}
	for range asked {
		<-s.done
	}
	if asked > 0 {
		s.client.Write(s.replies(asked)) // whether the client has gone, the next read tells
	}
	return commands
}

// replies are those to all commands, in the order of these.
func (s *sharing) replies(asked int) []byte {
	for i := range s.parts {
		p := &s.parts[i]
		s.left[i], p.commands, p.replies = p.replies, p.commands[:0], p.replies[:0]
	}
	if asked == 1 {
		return s.left[s.order[0]]
	}
	s.all = s.all[:0]
	for _, at := range s.order {
		one, rest := resp.Cut(s.left[at])
		s.all, s.left[at] = append(s.all, one...), rest
	}
	return s.all
}

// sharedLink is a connection to Redis. The client that finds nobody writing writes for all.
type sharedLink struct {
	net.Conn
	asked      chan *part // whose replies are to come
	mu         sync.Mutex
	out, spare []byte
	writing    bool
}

func (l *sharedLink) send(p *part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := len(l.asked) > 0
	l.asked <- p
	l.out = append(l.out, p.commands...)
	if l.writing {
		return
	}
	for l.writing = true; len(l.out) > 0; others = true {
		if others { // they are about to send more: one call of the system is cheaper than two
			l.mu.Unlock()
			runtime.Gosched()
			l.mu.Lock()
		}
		l.out, l.spare = l.spare[:0], l.out
		l.mu.Unlock()
		l.Write(l.spare) // the reader hears of what goes wrong
		l.mu.Lock()
	}
	l.writing = false
}

// read gives each client its replies, and ends the program when Redis does.
func (l *sharedLink) read() {
	var now *part
	panic(eachRead(l, func(replies []byte) []byte {
		for one, rest := resp.Cut(replies); len(one) > 0; one, rest = resp.Cut(replies) {
			if now == nil {
				now = <-l.asked
			}
			now.replies, replies = append(now.replies, one...), rest
			if now.missing--; now.missing == 0 {
				now.done <- struct{}{}
				now = nil
			}
		}
		return replies
	}))
}
