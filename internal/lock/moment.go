package lock

import "time"

// moment is a time in eight bytes, for what is kept of each of a hundred thousand holds: how long after the start of
// the engine's clock; 0: none.
type moment int64

func (m moment) add(d time.Duration) moment { return m + moment(d) }

func (m moment) sub(other moment) time.Duration { return time.Duration(m - other) }

// clock counts moments.
type clock struct{ start time.Time }

// newClock is a clock that was started an hour ago, so that none of its moments is 0.
func newClock() clock { return clock{time.Now().Add(-time.Hour)} }

func (c clock) now() moment { return moment(time.Since(c.start)) }

// moment is a time, or none for the zero time.
func (c clock) moment(t time.Time) moment {
	if t.IsZero() {
		return 0
	}
	return moment(t.Sub(c.start))
}

// time is a moment for others to compare, and to subtract. It is not to be shown: the wall clock may have been set
// since the start.
func (c clock) time(m moment) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return c.start.Add(time.Duration(m))
}
