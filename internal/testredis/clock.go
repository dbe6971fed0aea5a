package testredis

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Clock is a server's own clock: TIME, TTLs and the uptime of a server that was started with it go by it. (faketime would do,
// but hangs with jemalloc, which Debian's redis-server is linked to.)
type Clock struct {
	t    testing.TB
	lib  string
	path string

	mu     sync.Mutex
	fields [3]int64 // as clock.c has them
}

//go:embed testdata/clock.c
var clockSource []byte

// NewClock returns a clock that gains so many parts per million; less than 0: it loses them. The error says why there can be none here: it wants Linux and cc.
func NewClock(t testing.TB, gains int64) (*Clock, error) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if runtime.GOOS != "linux" || err != nil {
		return nil, fmt.Errorf("testredis: clocks of servers want Linux and a C compiler: %v", err)
	}
	dir := t.TempDir()
	c := &Clock{t: t, lib: filepath.Join(dir, "clock.so"), path: filepath.Join(dir, "clock")}
	source := filepath.Join(dir, "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	if said, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-o", c.lib, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("testredis: cc: %w\n%s", err, said)
	}
	c.fields[0], c.fields[1] = time.Now().UnixNano(), gains
	c.write()
	return c, nil
}

// Step sets the wall clock forward by d, at once; less than 0: back.
func (c *Clock) Step(d time.Duration) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fields[2] += d.Nanoseconds()
	c.write()
}

func (c *Clock) write() {
	var b []byte
	for _, f := range c.fields {
		b = binary.NativeEndian.AppendUint64(b, uint64(f))
	}
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteAt(b, 0)
		_ = f.Close()
	}
	if err != nil {
		c.t.Fatalf("testredis: clock: %v", err)
	}
}

func (c *Clock) env() []string {
	return append(os.Environ(), "LD_PRELOAD="+c.lib, "TESTREDIS_CLOCK="+c.path)
}
