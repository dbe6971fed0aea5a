package faults

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Ten thousand connections opened and closed as fast as it goes, in every unfriendly way.
func TestManyShortConnections(t *testing.T) {
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL())
	watch := watchOver(t, p.Addr())
	const total = 10000
	memory, goroutines, busy, began := p.RSS(), p.Metric("go_goroutines"), p.CPU(), time.Now()
	var refused atomic.Int64
	const side = 50
	harness.Together(side, func(i int) {
		for n := i; n < total; n += side {
			c, err := net.Dial("tcp", p.Addr())
			if err != nil {
				refused.Add(1)
				continue
			}
			w := harness.NewWire(t, c)
			switch n % 5 {
			case 0: // at once
			case 1:
				w.Reset()
			case 2:
				_ = w.TrySend("PING")
			case 3:
				_, _ = c.Write([]byte("*2\r\n$4\r\nLO"))
				w.Reset()
			case 4:
				if got, err := w.Try("LOCK", fmt.Sprint("short", n)); got != "+OK\r\n" {
					t.Errorf("LOCK: %q, %v", got, err)
				}
			}
			w.Close()
		}
	})
	took := time.Since(began)
	most := p.RSS()
	n, median, longest := watch.finish()
	harness.Eventually(t, "the locks of those that have gone are free", func() bool { return server.Do(t, "DBSIZE") == int64(4) }) // the bystanders' keys
	harness.Eventually(t, "their goroutines have ended", func() bool { return p.Metric("go_goroutines") < goroutines+20 })
	t.Logf("%d connections in %v (%d refused by the kernel): CPU %v; memory %d MiB before, %d MiB after; %d commands of bystanders, median %v, longest %v",
		total, took.Round(time.Millisecond), refused.Load(), p.CPU()-busy, memory>>20, most>>20, n, median, longest)
	if most > memory+200<<20 {
		t.Errorf("memory grew to %d MiB", most>>20)
	}
}

// Slowloris: connections that send a byte now and then, or nothing, are closed; a slow but honest client is not.
func TestSlowloris(t *testing.T) {
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL(), "--handshake-timeout", "5s", "--max-clients", "1500")
	watch := watchOver(t, p.Addr())
	memory, busy := p.RSS(), p.CPU()
	command := "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1000\r\n"
	slow := make([]net.Conn, 1000)
	for i := range slow {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		slow[i] = c
	}
	began := time.Now()
	for n := 0; time.Since(began) < 1500*time.Millisecond; n++ {
		for i, c := range slow {
			if i%4 > 0 { // every fourth sends nothing
				_, _ = c.Write([]byte{command[n%len(command)]}) // those that were closed early show below
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
	honest := harness.Dial(t, p.Addr())
	honest.Do("PING") // the time for the first command is kept; what follows may take longer
	_, _ = honest.C.Write([]byte("*2\r\n$4\r\nECHO\r\n$5\r\nsl"))
	most := p.RSS()
	alive := 0
	for _, c := range slow {
		w := harness.NewWire(t, c)
		if !w.Closed() {
			alive++
		}
	}
	ended := time.Since(began)
	time.Sleep(500 * time.Millisecond)
	_, _ = honest.C.Write([]byte("ow.\r\n"))
	if got := honest.Read(); got != "$5\r\nslow.\r\n" {
		t.Errorf("the honest client: %q", got)
	}
	n, median, longest := watch.finish()
	t.Logf("%d slow connections: %d alive after %v; CPU %v; memory %d MiB before, %d MiB at most; %d commands of bystanders, median %v, longest %v",
		len(slow), alive, ended.Round(time.Millisecond), p.CPU()-busy, memory>>20, most>>20, n, median, longest)
	if alive > 0 {
		t.Errorf("%d slow connections are still served", alive)
	}
	if most > memory+200<<20 { // 100 KiB each took the program with the race detector in it
		t.Errorf("memory grew to %d MiB", most>>20)
	}
}

// R11, R4: clients that ask for much and read nothing, and clients that begin big values and stop, cost a bounded part of memory.
func TestGreedyClients(t *testing.T) {
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL())
	server.Do(t, "SET", "big", strings.Repeat("b", 10<<20))
	watch := watchOver(t, p.Addr())
	memory, busy := p.RSS(), p.CPU()
	var greedy []net.Conn
	for range 10 {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte(strings.Repeat("*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n", 100))) // a thousand million bytes each
		greedy = append(greedy, c)
	}
	for range 100 { // announced: 100 × 500 MiB
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$524288000\r\n" + strings.Repeat("x", 64<<10)))
		greedy = append(greedy, c)
	}
	most := memory
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		most = max(most, p.RSS())
	}
	before := watch.served()
	harness.Eventually(t, "bystanders are served while the greedy are there", func() bool { return watch.served() > before+400 })
	n, median, longest := watch.finish()
	for _, c := range greedy {
		_ = c.Close()
	}
	t.Logf("10 clients that ask for 1 GB and read nothing, 100 that announce 500 MB and stop: memory %d MiB before, %d MiB at most; CPU %v; %d commands of bystanders, median %v, longest %v",
		memory>>20, most>>20, p.CPU()-busy, n, median, longest)
	if most > memory+800<<20 {
		t.Errorf("memory grew to %d MiB", most>>20)
	}
}
