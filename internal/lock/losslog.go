package lock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

const (
	// lossesLogged is how many losses the log tells one by one each time it is written; the others are counted.
	lossesLogged = 200
	// logPause is the shortest time between two times.
	logPause = 100 * time.Millisecond
)

// lossLog is what the log is to tell of losses. Whoever finds a loss must not wait for where the log goes.
type lossLog struct {
	mu   sync.Mutex
	news []lostHold
	more int
	wake chan struct{} // one slot
}

type lostHold struct {
	id       lockstore.ID
	reason   string
	expected bool // its owner knew when it would end
}

func (l *lossLog) add(lost lostHold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.news) < lossesLogged {
		l.news = append(l.news, lost)
	} else {
		l.more++
	}
	signal(l.wake)
}

func (l *lossLog) take() (news []lostHold, more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news, more = l.news, l.more
	l.news, l.more = nil, 0
	return news, more
}

// tellLog writes losses to the log until ctx ends.
func (m *Manager) tellLog(ctx context.Context) {
	for {
		select {
		case <-m.lossLog.wake:
			m.logLosses()
			m.sleep(ctx, logPause)
		case <-ctx.Done():
			m.logLosses()
			return
		}
	}
}

func (m *Manager) logLosses() {
	news, more := m.lossLog.take()
	for _, l := range news {
		level := slog.LevelWarn
		if l.expected {
			level = slog.LevelInfo
		}
		m.log.Log(context.Background(), level, "lock lost", "key", l.id.Key, "kind", l.id.Kind, "db", l.id.DB, "owner", l.id.Owner, "reason", l.reason)
	}
	if more > 0 {
		m.log.Warn("more locks were lost at the same time", "locks", more)
	}
}
