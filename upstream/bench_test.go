package upstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/held"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// cpuTime is what this process has used so far, user and system.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// count is a Sink that only counts bytes.
type count struct{ n int }

func (c *count) Reply(p []byte) { c.n += len(p) }

// BenchmarkDo is the cost of the pipe alone, without clients' sockets.
func BenchmarkDo(b *testing.B) {
	for _, depth := range []int{1, 16} {
		for _, sessions := range []int{1, 50} {
			b.Run(fmt.Sprintf("sessions=%d/pipeline=%d", sessions, depth), func(b *testing.B) {
				benchmarkDo(b, sessions, depth)
			})
		}
	}
}

func benchmarkDo(b *testing.B, sessions, depth int) {
	node := NewNode(targetOf(b, testredis.Start(b)), NodeOptions{})
	defer node.Close()
	pipe, err := node.Open(context.Background(), Identity{Proto: 2})
	if err != nil {
		b.Fatal(err)
	}
	defer pipe.Release()
	get := resp.AppendCommand(nil, "GET", "key:000000012345")
	cmd := bytes.Repeat(get, depth)
	cmds := make([][]byte, depth)
	for i := range cmds {
		cmds[i] = cmd[i*len(get) : (i+1)*len(get)]
	}
	var (
		left atomic.Int64
		wg   sync.WaitGroup
	)
	left.Store(int64(b.N))
	b.ReportAllocs()
	before := cpuTime(b)
	b.ResetTimer()
	for range sessions {
		wg.Go(func() {
			r := Request{Cmds: cmds, Sink: &count{}}
			for left.Add(int64(-depth)) > int64(-depth) {
				if err := pipe.Do(&r); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/cmd")
}

// answering is a connection to a Redis that answers each command at once. It takes no system call, and notes for how
// long the goroutine that reads it was at work between two reads.
type answering struct {
	net.Conn
	size  int    // of a command
	reply []byte // to each

	mu     sync.Mutex // guards all below
	come   sync.Cond
	owed   int
	closed bool
	busy   time.Duration // the reader's own
	read   time.Time
}

func (c *answering) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.come.Signal()
	return nil
}

func (c *answering) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.owed += len(p) / c.size
	c.mu.Unlock()
	c.come.Signal()
	return len(p), nil
}

func (c *answering) Read(p []byte) (int, error) {
	came := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy += came.Sub(c.read)
	for c.owed == 0 && !c.closed {
		c.come.Wait()
	}
	if c.closed {
		return 0, io.EOF
	}
	replies, n := min(c.owed, len(p)/len(c.reply)), 0
	c.owed -= replies
	for range replies {
		n += copy(p[n:], c.reply)
	}
	c.read = time.Now()
	return n, nil
}

// reused is a Sink that keeps the replies of one Do, as a session does.
type reused []byte

func (r *reused) Reply(p []byte) { *r = append(*r, p...) }

// BenchmarkSharedPipe is what one connection that clients share can carry: for what part of the time its reader is busy,
// and its mutex held.
func BenchmarkSharedPipe(b *testing.B) {
	for _, depth := range []int{1, 16} {
		for _, sessions := range []int{50, 1000} {
			b.Run(fmt.Sprintf("sessions=%d/pipeline=%d", sessions, depth), func(b *testing.B) {
				benchmarkSharedPipe(b, sessions, depth)
			})
		}
	}
}

func benchmarkSharedPipe(b *testing.B, sessions, depth int) {
	get := resp.AppendCommand(nil, "GET", "key:000000012345")
	conn := &answering{size: len(get), reply: resp.AppendBulkString(nil, "a value of 16 by"), read: time.Now()}
	conn.come.L = &conn.mu
	l := newLink(conn, true, defaultMaxInflight)
	go l.serve()
	cmds := slices.Repeat([][]byte{get}, depth)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	held.Measure(b, func() {
		var clients sync.WaitGroup
		for range sessions {
			clients.Go(func() {
				var kept reused
				r := Request{Cmds: cmds, Sink: &kept}
				for left.Add(int64(-depth)) > int64(-depth) {
					kept = kept[:0]
					r.prepare()
					if err := l.do(&r); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		clients.Wait()
	}, held.Mutex{Name: "link.mu", Of: &l.mu})
	b.StopTimer()
	l.fail(ErrClosed)
	conn.mu.Lock()
	b.ReportMetric(100*float64(conn.busy)/float64(b.Elapsed()), "reader-busy-%")
	conn.mu.Unlock()
}
