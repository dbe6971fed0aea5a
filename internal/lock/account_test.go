package lock

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// logText is a log that can be read while it is written.
type logText struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *logText) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.all.String(), text)
}

// TestAccountIsTold: an account that may not publish gets no lock that it could not give back; the log names what is missing, and
// that it is there again. A right that is taken away under a holder leaves the lock whole.
func TestAccountIsTold(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "svc", "on", ">pw", "~*", "&*", "+@all", "-publish")
	log := &logText{}
	ctl := upstream.NewControl(upstream.Target{Network: "tcp", Addr: s.Addr(), User: "svc", Password: "pw"}, upstream.ControlOptions{Logger: testLog(), DialTimeout: 10 * time.Second})
	m := atWork(t, New(sharded.Single(ctl), ManagerOptions{Logger: slog.New(slog.NewTextHandler(log, nil))}), ctl.Close)
	eventually(t, 30*time.Second, "logged", func() bool { return log.has("no lock can be had") && log.has("in the script release") })
	a, lost := client(m)
	_, err := a.Lock(t.Context(), Request{Key: "k"})
	if err == nil || !strings.Contains(err.Error(), "no lock is given that could not be given back") || s.Do(t, "EXISTS", "k").(int64) != 0 {
		t.Fatal(err)
	}
	s.Do(t, "ACL", "SETUSER", "svc", "+publish")
	eventually(t, 30*time.Second, "allowed", func() bool { _, err := a.Lock(t.Context(), Request{Key: "k"}); return err == nil })
	eventually(t, 30*time.Second, "the log says that the rights are there", func() bool { return log.has("locks can be had again") }) // a moment after they count
	for _, way := range []UnlockRequest{{Key: "k"}, {Key: "k", Force: true}} {
		s.Do(t, "ACL", "SETUSER", "svc", "-publish")
		if _, err := a.Unlock(t.Context(), way); err == nil || !strings.HasPrefix(err.Error(), "NOPERM the service account can't run") {
			t.Errorf("%+v: %v", way, err)
		}
		if hash(t, s, "k")[a.Owner()] != "1" || lost.reasons() != "" {
			t.Errorf("%+v: half of it was given back: %v %s", way, hash(t, s, "k"), lost.reasons())
		}
	}
	s.Do(t, "ACL", "SETUSER", "svc", "+publish")
	mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
}

// TestEvictionIsTold: the log warns at the start of a Redis that may evict locks.
func TestEvictionIsTold(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--maxmemory", "1gb", "--maxmemory-policy", "volatile-lru")
	log := &logText{}
	ctl := upstream.NewControl(upstream.Target{Network: "tcp", Addr: s.Addr()}, upstream.ControlOptions{Logger: testLog(), DialTimeout: 10 * time.Second})
	atWork(t, New(sharded.Single(ctl), ManagerOptions{Logger: slog.New(slog.NewTextHandler(log, nil))}), ctl.Close)
	eventually(t, 30*time.Second, "the log warns", func() bool { return log.has("Redis may evict locks") && log.has("maxmemory-policy=volatile-lru") })
}
