package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockproxy/lockproxy/bench/contest"
	"github.com/lockproxy/lockproxy/internal/program"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const benchmarkHead = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n"

func TestParseBenchmark(t *testing.T) {
	got, err := parseBenchmark("WARNING: Could not fetch server CONFIG\n"+benchmarkHead+
		`"GET","52083.34","0.616","0.064","0.487","0.911","4.391","24.687"`+"\n", "GET")
	if err != nil {
		t.Fatal(err)
	}
	if want := (sample{PerSecond: 52083.34, P50: 487, P99: 4391}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, bad := range []string{
		"", benchmarkHead, benchmarkHead + `"SET","1","1","1","1","1","1","1"`,
		benchmarkHead + `"GET","0.00","1","1","1","1","1","1"`, benchmarkHead + `"GET","x","1","1","1","1","1","1"`,
	} {
		if _, err := parseBenchmark(bad, "GET"); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestMedian(t *testing.T) {
	same := func(v float64) float64 { return v }
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 8}, 3}} {
		if got := median(c.in, same); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestTableLinesUp(t *testing.T) {
	tb := table{title: "T", head: []string{"", "p50 µs"}}
	tb.add("direct", "63")
	tb.add("byte relay", "–")
	var out strings.Builder
	tb.print(&out)
	want := `
T

|            | p50 µs |
|------------|-------:|
| direct     |     63 |
| byte relay |      – |
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	out.Reset()
	tb.printPage(&out)
	if want := "\nT\n\n|  | p50 µs |\n|---|--:|\n| direct | 63 |\n| byte relay | – |\n"; out.String() != want {
		t.Errorf("on a page:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestParseFlags(t *testing.T) {
	if s, err := parse([]string{"-quick", "-only", "locks"}); err != nil || s.rounds != 1 || !s.wants("locks") || s.wants("data") {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"-only x", "-rounds 0", "-seconds -1", "word"} {
		if _, err := parse(strings.Fields(bad)); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// lockServer answers LOCK and UNLOCK of one lock, and nothing else.
type lockServer struct {
	net.Listener
	lock   chan struct{} // holds one item while the lock is free
	ended  chan struct{} // closed with the test
	served sync.WaitGroup
}

func newLockServer(t *testing.T) *lockServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &lockServer{Listener: l, lock: make(chan struct{}, 1), ended: make(chan struct{})}
	s.lock <- struct{}{}
	s.served.Go(s.accept)
	t.Cleanup(func() { l.Close(); close(s.ended); s.served.Wait() })
	return s
}

func (s *lockServer) accept() {
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		s.served.Go(func() { s.serve(c) })
		s.served.Go(func() { <-s.ended; c.Close() })
	}
}

func (s *lockServer) serve(c net.Conn) {
	defer c.Close()
	in := &client{Conn: c, r: bufio.NewReader(c)}
	for {
		cmd, err := in.reply() // a command has the form of a reply
		if err != nil {
			return
		}
		switch {
		case strings.Contains(string(cmd), "UNLOCK"):
			s.lock <- struct{}{}
			io.WriteString(c, ":1\r\n")
		default:
			<-s.lock
			io.WriteString(c, "+OK\r\n")
		}
	}
}

// TestRawLock has clients of ours take turns, and sees a reply that is not what it must be.
func TestRawLock(t *testing.T) {
	s := contest.Settings{Addr: newLockServer(t).Addr().String(), Shared: true}
	client, err := raw[rawLock].Start(s)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 4 {
		both, err := client(i)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for range 50 {
				if err := errors.Join(both.Take(), both.Release()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	client, err = raw[rawGet].Start(s)
	if err != nil {
		t.Fatal(err)
	}
	get, err := client(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := get.Take(); err == nil || !strings.Contains(err.Error(), "+OK") {
		t.Errorf("the reply to GET is +OK: error %v", err)
	}
}

func TestReplyFrames(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	c := &client{Conn: ours, r: bufio.NewReader(ours)}
	for _, frame := range []string{"+OK\r\n", ":12\r\n", "$-1\r\n", "$5\r\na\r\nbc\r\n", "*-1\r\n", "*0\r\n", "*2\r\n*1\r\n:1\r\n$1\r\nx\r\n"} {
		go io.WriteString(theirs, frame)
		if got, err := c.reply(); err != nil || string(got) != frame {
			t.Errorf("reply = %q, %v, want %q", got, err, frame)
		}
	}
}

// TestFloors runs each in a process of its own, as a measurement does.
func TestFloors(t *testing.T) {
	if words := strings.Fields(os.Getenv("BENCH_TEST_FLOOR")); len(words) > 0 {
		fmt.Println(floors[words[0]](words[1], words[2:]))
		return
	}
	for name := range floors {
		t.Run(name, func(t *testing.T) { testFloor(t, name) })
	}
}

func testFloor(t *testing.T, name string) {
	redis := newLockServer(t).Addr().String()
	if name == "handoffs" {
		redis = testredis.Start(t).Addr()
	}
	addr, err := program.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFloors$")
	cmd.Env = append(os.Environ(), "BENCH_TEST_FLOOR="+name+" "+addr+" "+redis)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var clients [2]*client
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if clients[0], err = dial(t.Context(), addr); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer clients[0].Close()
	if clients[1], err = dial(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	defer clients[1].Close()
	lock, unlock := exchange{command("LOCK", "k"), "+OK"}, exchange{command("UNLOCK", "k"), ":1"}
	for range 10 {
		if err := errors.Join(lock.do(clients[0]), unlock.do(clients[0]), lock.do(clients[1])); err != nil {
			t.Fatal(err)
		}
		if name == "handoffs" { // the others do not know that a lock is waited for
			if _, err := clients[0].Write(lock.send); err != nil {
				t.Fatal(err)
			}
		}
		if err := unlock.do(clients[1]); err != nil {
			t.Fatal(err)
		}
		if name != "handoffs" {
			continue
		}
		if reply, err := clients[0].reply(); err != nil || string(reply) != "+OK\r\n" {
			t.Fatalf("%q, %v", reply, err)
		}
		if err := unlock.do(clients[0]); err != nil {
			t.Fatal(err)
		}
	}
}
