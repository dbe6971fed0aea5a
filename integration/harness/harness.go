// Package harness is what the tests with foreign clients share: the lockproxy under test as a process, and the programs
// of other languages, which are built outside the repository.
package harness

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Patience bounds every wait for something that must happen: wide, because the machine may be busy.
const Patience = 30 * time.Second

// binary is the lockproxy under test, built by Main.
var binary string

// Asked says that -run names these tests: they install packages and take minutes, which nobody wants from ./... .
func Asked() bool { return strings.Contains(flag.Lookup("test.run").Value.String(), "Interop") }

// Main builds lockproxy when the tests of a package two folders below the root were asked for, and runs them.
func Main(m *testing.M) int {
	if !Asked() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "lockproxy-interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "lockproxy")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/lockproxy")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building lockproxy:", err)
		return 1
	}
	return m.Run()
}

// Proxy is one running lockproxy.
type Proxy struct {
	Addr string
	stop func() // kill -9, and waits for the end
	log  safeBuffer
}

// StartProxy starts lockproxy before upstream, a URL, and waits until it listens. It ends with the test.
func StartProxy(t testing.TB, upstream string, args ...string) *Proxy {
	t.Helper()
	p := &Proxy{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))}
	ctx, kill := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, append([]string{"--listen", p.Addr, "--upstream", upstream}, args...)...)
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	if err := cmd.Start(); err != nil {
		kill()
		t.Fatal(err)
	}
	p.stop = sync.OnceFunc(func() {
		kill()
		_ = cmd.Wait() // it was killed
	})
	t.Cleanup(func() {
		p.stop()
		if log := p.log.String(); t.Failed() || strings.Contains(log, "panic: ") {
			t.Errorf("lockproxy said:\n%s", log)
		}
	})
	for end := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		if c, err := redis.Dial("tcp", p.Addr); err == nil {
			_ = c.Close()
			return p
		}
		if time.Now().After(end) {
			t.Fatal("lockproxy does not listen")
		}
	}
}

// Kill ends it as kill -9 does, and waits until it is gone.
func (p *Proxy) Kill() { p.stop() }

// safeBuffer is a log that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
