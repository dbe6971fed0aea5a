package downstream

import (
	"sync"
	"time"
)

// logLimiter bounds how much strangers can make the log grow.
type logLimiter struct {
	mu   sync.Mutex
	next time.Time
	more int
}

const limiterPeriod = 10 * time.Second

// do runs f at most once in limiterPeriod; more is how often it has not since
// the last time.
func (l *logLimiter) do(f func(more int)) {
	l.mu.Lock()
	now := time.Now()
	if now.Before(l.next) {
		l.more++
		l.mu.Unlock()
		return
	}
	more := l.more
	l.more, l.next = 0, now.Add(limiterPeriod)
	l.mu.Unlock()
	f(more)
}
