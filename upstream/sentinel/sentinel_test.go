package sentinel

import (
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/upstream"
)

// TestOddSentinel: a Sentinel that says what is no reply, or what nobody asked for, is asked again on another connection, and the process goes on.
func TestOddSentinel(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{"$-5\r\n", "*-2\r\n", "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n", ">3\r\n$9\r\nsubscribe\r\n+a\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n+a\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n+a\r\n:1\r\n"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		hungUp := make(chan struct{}, 100)
		var talks sync.WaitGroup
		talks.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				talks.Go(func() { talkOddly(c, odd); hungUp <- struct{}{} })
			}
		})
		f := Follow(&upstream.Target{Network: "tcp", Sentinels: &upstream.Sentinels{Master: "main", Addrs: []string{ln.Addr().String()}}}, slog.New(slog.DiscardHandler))
		for range 3 {
			<-hungUp
		}
		f.Close()
		ln.Close()
		talks.Wait()
	}
}

// talkOddly greets as a Redis does, and answers what comes then oddly, until the other side hangs up.
func talkOddly(c net.Conn, odd string) {
	defer c.Close()
	buf := make([]byte, 1<<10)
	for answer := "%1\r\n$5\r\nproto\r\n:3\r\n"; ; answer = odd {
		if _, err := c.Read(buf); err != nil {
			return
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return
		}
	}
}
