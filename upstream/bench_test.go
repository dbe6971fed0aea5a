package upstream

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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
