package testredis

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

func TestMain(m *testing.M) {
	if os.Getenv("TESTREDIS_ORPHAN") != "" {
		os.Exit(m.Run()) // killed by its parent: no leak check
	}
	VerifyTestMain(m)
}

func TestServerIsEmptyAndTakesConfiguration(t *testing.T) {
	t.Parallel()
	s := Start(t, "--requirepass secret", "--maxmemory", "7mb")
	if got, _ := redis.String(s.Do(t, "PING"), nil); got != "PONG" {
		t.Errorf("PING answered %q", got)
	}
	if n, _ := redis.Int(s.Do(t, "DBSIZE"), nil); n != 0 {
		t.Errorf("%d keys in a new server", n)
	}
	for name, want := range map[string]string{"maxmemory": strconv.Itoa(7 << 20), "save": "", "appendonly": "no", "bind": "127.0.0.1"} {
		got, err := redis.StringMap(s.Do(t, "CONFIG", "GET", name), nil)
		if err != nil || got[name] != want {
			t.Errorf("%s is %q (%v), want %q", name, got[name], err, want)
		}
	}
	if want := "redis://:secret@" + s.Addr(); s.URL() != want {
		t.Errorf("URL %s, want %s", s.URL(), want)
	}
}

func TestRestartKeepsThePortAndForgetsTheKeys(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := s.Dial(t)
	s.Do(t, "SET", "k", "v")
	pid, addr := s.Pid(), s.Addr()
	s.Kill()
	if _, err := c.Do("PING"); err == nil {
		t.Error("a killed server answers")
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after Kill: %v", err)
	}
	s.Restart()
	if s.Pid() == pid || s.Addr() != addr {
		t.Errorf("pid %d -> %d, address %s -> %s", pid, s.Pid(), addr, s.Addr())
	}
	if n, _ := redis.Int(s.Do(t, "EXISTS", "k"), nil); n != 0 {
		t.Error("a key survived Restart")
	}
}

func TestStopFreezes(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := s.Dial(t)
	s.Stop()
	if _, err := redis.DoWithTimeout(c, 100*time.Millisecond, "PING"); err == nil {
		t.Error("a stopped server answers")
	}
	s.Cont()
	s.Do(t, "PING")
}

func TestProxyLatency(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr())
	c, err := redis.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const delay = 150 * time.Millisecond
	took := func() time.Duration {
		began := time.Now()
		if _, err := c.Do("PING"); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	took()
	p.Latency(2 * delay)
	p.Latency(delay)
	if d := took(); d < 2*delay {
		t.Errorf("%v for a round trip delayed by %v each way", d, delay)
	}
	p.Latency(time.Minute)
	p.Clear()
	if d := took(); d >= time.Minute {
		t.Errorf("%v for a round trip after Clear", d)
	}
}

func TestProxyCuts(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr())
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, len("+PONG\r\n"))); err != nil {
			t.Fatal(err)
		}
		return c
	}
	readEnd := func(c net.Conn) error {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err := c.Read(make([]byte, 1))
		return err
	}

	c := dial()
	p.CutAll()
	if err := readEnd(c); err != io.EOF {
		t.Errorf("after CutAll: %v", err)
	}
	c = dial()
	p.ResetAll()
	if err := readEnd(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after ResetAll: %v", err)
	}
	c = dial()
	p.Disable()
	if err := readEnd(c); err != io.EOF {
		t.Errorf("after Disable: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial while disabled: %v", err)
	}
	p.Enable()
	dial()
}

// Bytes are on the way, delayed, in both directions when the connections are
// cut: the links must end, and toxics must still come and go.
func TestProxyCutsInFlight(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr())
	for range 20 {
		p.Latency(20 * time.Millisecond)
		for range 4 {
			c, err := net.Dial("tcp", p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 50 {
				if _, err := c.Write([]byte("PING\r\n")); err != nil {
					t.Fatal(err)
				}
			}
		}
		p.CutAll()
		p.Clear()
	}
	if n, _ := redis.Int(s.Do(t, "DBSIZE"), nil); n != 0 {
		t.Error("keys from nowhere")
	}
}

func TestFreePortsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 50 {
		port := FreePort(t)
		if seen[port] {
			t.Fatalf("port %d given twice", port)
		}
		seen[port] = true
	}
}

// A test binary that is killed takes its servers with it.
func TestServerDiesWithTheTestBinary(t *testing.T) {
	t.Parallel()
	if os.Getenv("TESTREDIS_ORPHAN") != "" {
		s := Start(t)
		_, _ = os.Stdout.WriteString("addr=" + s.Addr() + "\n")
		select {}
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("only Linux has a parent-death signal")
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "TESTREDIS_ORPHAN=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256)
	n, _ := out.Read(buf)
	_, addr, found := strings.Cut(strings.TrimSpace(string(buf[:n])), "addr=")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !found {
		t.Fatalf("the child said %q", buf[:n])
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		c, err := net.Dial("tcp", addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			_ = c.Close()
		}
		if time.Now().After(deadline) {
			t.Fatal("redis-server outlived the test binary")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
