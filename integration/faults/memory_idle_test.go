package faults

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What a connection that has said a little and then idles costs the proxy: buffers, session and goroutine's stack.
func TestMemoryOfIdleConnections(t *testing.T) {
	t.Parallel()
	first := map[string]string{"*1\r\n$4\r\nPING\r\n": "+PONG\r\n", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n": "$1\r\nv\r\n"}
	t.Run("without a password", func(t *testing.T) { memoryOfIdleConnections(t, first, 20<<10) })
	first["*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$3\r\nany\r\n"] = "+OK\r\n"
	t.Run("with AUTH", func(t *testing.T) { memoryOfIdleConnections(t, first, 24<<10) })
}

// memoryOfIdleConnections has many connections say these commands, in any order, and measures what each costs: at most so many bytes.
func memoryOfIdleConnections(t *testing.T, first map[string]string, most int64) {
	server := testredis.Start(t)
	server.Do(t, "SET", "k", "v")
	p := harness.StartProxy(t, server.URL(), "--max-clients", "20000")
	warm := harness.Dial(t, p.Addr())
	warm.Do("GET", "k")
	connections := 2000
	if harness.Long() {
		connections = 10_000
	}
	if harness.RaceEnabled {
		most *= 8 // shadow memory
	}
	before := p.RSS()
	for range connections {
		w := harness.Dial(t, p.Addr())
		w.R = nil // bufio's 4 KiB would be this process' trouble
		for command, want := range first {
			if _, err := w.C.Write([]byte(command)); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(want))
			if _, err := w.C.Read(got); err != nil || string(got) != want {
				t.Fatalf("%q, %v", got, err)
			}
		}
	}
	time.Sleep(time.Second)
	each := (p.RSS() - before) / int64(connections)
	t.Logf("%d idle connections: %d bytes of resident memory each", connections, each)
	if each > most {
		t.Errorf("that is more than %d", most)
	}
}
