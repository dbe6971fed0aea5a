package upstream

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// warnings keeps what is logged as a warning.
type warnings struct {
	mu  sync.Mutex
	all strings.Builder
}

func (w *warnings) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(p)
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// A connection on which nothing is under way, and which Redis closes, as it does after its time-out for idle clients, is made again without a
// warning, and is no failure. One that is closed under a command is.
func TestUnusedConnectionIsNoFailure(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	log := new(warnings)
	n := NewNode(targetOf(t, server), NodeOptions{DialTimeout: dialTime, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	t.Cleanup(n.Close)
	p := open(t, n, Identity{Proto: 2})
	first := ask1(t, p, "CLIENT", "ID")
	unused := p.link.Load()
	server.Do(t, "CLIENT", "KILL", "TYPE", "normal")
	// Before the loss is seen a command would still go over the connection, and would be lost with it.
	waitFor(t, "the loss is seen", unused.dead.Load)
	waitFor(t, "the connection is made again", func() bool { return p.Connected() && ask1(t, p, "CLIENT", "ID") != first })
	if said := log.text(); said != "" {
		t.Errorf("a connection that nobody used: %s", said)
	}
	if p.failed(errUnused) || !p.failed(errClosedByRedis) {
		t.Error("what counts as a failure is wrong")
	}
	underWay := make(chan error)
	go func() {
		underWay <- p.Do(&Request{Cmds: [][]byte{resp.AppendCommand(nil, "BLPOP", "list", "0")}, Sink: new(sinkText)})
	}()
	waitFor(t, "the command waits", func() bool {
		return strings.Contains(string(server.Do(t, "INFO", "clients").([]byte)), "\r\nblocked_clients:1\r\n")
	})
	server.Do(t, "CLIENT", "KILL", "TYPE", "normal")
	if err := <-underWay; !IsLost(err) || errors.Is(err, errUnused) {
		t.Errorf("a command under way: %v", err)
	}
	waitFor(t, "the loss is logged", func() bool { return strings.Contains(log.text(), "connection to Redis lost") })
}
