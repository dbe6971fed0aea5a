package lock

import (
	"sync/atomic"
	"time"
)

// The turns of other proxies and of Redisson: a proxy whose clients hand the lock on leaves it free for a moment now
// and then, for whoever listens elsewhere. The rule is here, and neither reads a clock nor talks to Redis.

const (
	// While others listen they get a turn after handoffMany grants in a row, but not before handoffLong times the pause
	// of the turn before: so a turn takes a tenth of the time, however far away they are, and a pause that was too
	// short for them is soon followed by one that is twice as long.
	handoffMany = 32
	handoffLong = 10
	// handoffLongest is after how long they get a turn however few the grants were, because each hold is long.
	handoffLongest = 100 * time.Millisecond
	// handoffPause is how long our own waiters stand back then, at first; handoffPauseMost is the longest, if others
	// need longer to come: they may be far away. Others wait for their turn for ten of it at most.
	handoffPause     = 2 * time.Millisecond
	handoffPauseMost = 250 * time.Millisecond
	// turnPoll is after how many ms, at first, a head tries again for a free lock that is another's to take: by then
	// the other will have taken it, without a message, and its lease says when to try. Each time it has not, twice as
	// long passes.
	turnPoll = 10
)

// handoffsInARow counts the grants from one of this proxy's clients to the next. It goes with the lock from hold to
// hold, because a line ends whenever nobody waits.
type handoffsInARow struct {
	grants int
	since  time.Time
}

// over says that it is somebody else's turn; last is the pause of the turn before.
func (s handoffsInARow) over(last time.Duration, now time.Time) bool {
	long := now.Sub(s.since)
	return (s.grants >= handoffMany || long >= handoffLongest) && long >= handoffLong*last
}

// next is the row with one grant more.
func (s handoffsInARow) next() handoffsInARow { return handoffsInARow{s.grants + 1, s.since} }

// turns are those that a line leaves to others. lines.mu guards them.
type turns struct {
	pause    time.Duration // how long others have for the next one
	last     time.Duration // and had for the one before
	offered  bool          // one is under way
	holdBack time.Time     // it is somebody else's turn until then
	refusals int           // of the head, one after the other, since it was somebody else's turn
}

// turnsFrom are those of a new line; pause is what the lock has kept of the line before.
func turnsFrom(pause time.Duration) turns {
	pause = max(pause, handoffPause)
	return turns{pause: pause, last: pause}
}

// offer notes that others have a turn from now on.
func (t *turns) offer(now time.Time) { t.offered, t.last, t.holdBack = true, t.pause, now.Add(t.pause) }

// turnEnded notes whether others used the turn that was offered: the next pause is twice as long when nobody did, and
// an eighth shorter when somebody did. So about one turn in six is too short for those who are always slow, and a pause
// that grew because they were slow for a moment is short again after some twenty turns.
func (t *turns) turnEnded(used bool) {
	switch {
	case !t.offered:
	case used:
		t.pause = max(t.pause-t.pause/8, handoffPause)
	default:
		t.pause = min(2*t.pause, handoffPauseMost)
	}
	t.offered = false
}

// messages counts what was heard of a lock by PUBLISH and by SPUBLISH. A proxy sends its own in each way that it
// listens to, while older Redissons on a cluster send theirs by PUBLISH alone.
type messages struct{ plain, sharded atomic.Int32 }

func (m *messages) count(sharded bool) {
	if sharded {
		m.sharded.Add(1)
	} else {
		m.plain.Add(1)
	}
}

func (m *messages) forget() {
	m.plain.Store(0)
	m.sharded.Store(0)
}

// others says that more was heard than the one message by which a turn was offered: others have had the lock.
func (m *messages) others() bool { return max(m.plain.Load(), m.sharded.Load()) > 1 }

// comeAgain is in how many ms the head tries again that was refused a lock with ttl ms left: sooner when it was
// somebody else's turn. Otherwise (not turn) such refusals are counted from 0 again.
func (t *turns) comeAgain(turn bool, ttl int64) int64 {
	if !turn {
		t.refusals = 0
		return ttl
	}
	t.refusals = min(t.refusals+1, 16)
	return min(ttl, turnPoll<<(t.refusals-1))
}
