package lockstore

import "time"

// longest is the longest lease or wait that local timers take as it is: about 31 years.
const longest = int64(1e12)

// Milliseconds turns a lease in ms, up to 2^53, into a Duration without overflow.
func Milliseconds(ms int64) time.Duration { return time.Duration(min(ms, longest)) * time.Millisecond }

// Later is the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
