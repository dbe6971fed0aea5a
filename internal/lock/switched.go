package lock

import (
	"sync"
	"time"
)

// A new master has what had reached it when it was promoted. Every hold is looked at there when the wake-up connection is
// back (resubscribed), and once more a little later: the answer of the former master to a verb may have been on its way.

// lookLater is how long after the first look at a new master the second comes.
const lookLater = time.Second

// switched remembers that the master has changed.
type switched struct {
	mu    sync.Mutex
	fresh bool      // no look has begun since
	again time.Time // when to look again; zero: no need
}

// masterSwitches is called when another Redis is about to become the master, before any connection to it is made.
func (m *Manager) masterSwitches() {
	m.account.outdated()
	m.one.Clock.Forget() // no not-after is reckoned before the new master's clock was read
	m.subscribers[0].Hurry()
	m.switched.mu.Lock()
	m.switched.fresh = true
	m.switched.mu.Unlock()
}

// anotherClock is told by how much the new master's clock is ahead of the former one's. Redis keeps the time at which a key
// expires, not its lease: with a clock ahead locks end earlier, and are believed in no longer than that.
func (m *Manager) anotherClock(ahead time.Duration) {
	m.log.Warn("the new master's clock differs from the former one's", "by", ahead)
	if ahead < 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, live := range m.byKey {
		for h := range live {
			h.deadline = h.deadline.Add(-ahead)
			if m.expect(h); h.deadline.Before(h.next) {
				m.plan(h, h.deadline)
			}
		}
	}
}

// reason is why a hold that is missing in the look that begins now is gone.
func (s *switched) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh {
		return reasonGone
	}
	s.fresh, s.again = false, time.Now().Add(lookLater)
	return reasonFailover
}

// due says, once, that the time of the second look has come.
func (s *switched) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.again.IsZero() || time.Now().Before(s.again) {
		return false
	}
	s.again = time.Time{}
	return true
}

// secondLook is the second look, when its time has come.
func (m *Manager) secondLook() {
	if m.switched.due() {
		m.recheck(reasonFailover)
	}
}
