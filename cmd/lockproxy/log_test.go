package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// unreadLog starts lockproxy with a log that nobody reads: its pipe is full, or has lost its reader.
func unreadLog(t *testing.T, noReader bool, args ...string) *process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	for err == nil && !noReader {
		_ = w.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = w.Write(make([]byte, 1))
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if noReader {
		r.Close()
	}
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), beLockproxy+"=1"), w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.read.Go(func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is looked at
	})
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.read.Wait()
	})
	return p
}

// A log that nobody reads holds up neither the proxy nor its end.
func TestLogThatNobodyReads(t *testing.T) {
	t.Parallel()
	for name, noReader := range map[string]bool{"full": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := freeAddr(t)
			p := unreadLog(t, noReader, "--listen", addr)
			c := p.dial("tcp", addr)
			expect(t, c, "OK", "SET", "k", "v")
			web, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer web.Close()
			if _, err := io.WriteString(web, "POST / HTTP/1.1\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(web) // it is hung up on, which is logged
			expect(t, c, "v", "GET", "k")
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := p.exit(); code != exitOK {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestJSONLogHasWords: in JSON, as in text, the kind of a lock is a word, and a duration has its unit.
func TestJSONLogHasWords(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, _ := newLogger(config.Config{Log: config.Log{Format: "json"}}, &out)
	log.Info("lost", "kind", lock.Read, "delay", 5*time.Second, "n", 7)
	if got := out.String(); !strings.Contains(got, `"level":"INFO","msg":"lost","kind":"read","delay":"5s","n":7}`) {
		t.Error(got)
	}
}
