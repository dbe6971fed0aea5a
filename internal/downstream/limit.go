package downstream

import "time"

// OutputLimit is Redis' client-output-buffer-limit for one class of clients. What counts is what this process holds for
// the client: replies gathered and not written yet. A reply that is passed on as it comes is not held.
type OutputLimit struct {
	Hard int           // bytes at which a client is closed at once; 0: none
	Soft int           // bytes at which it is closed when it holds them for a time; 0: none
	For  time.Duration // that time
}

// excess is since when a client has held more than its soft limit allows; zero: it does not.
type excess struct{ since time.Time }

// judge notes that held bytes are held now. until is when there must be fewer of them; zero: no time. over says that
// the client is to be closed.
func (x *excess) judge(l OutputLimit, held int, now time.Time) (until time.Time, over bool) {
	switch {
	case l.Soft == 0, held <= l.Soft:
		x.since = time.Time{}
	case x.since.IsZero():
		x.since = now
	}
	if !x.since.IsZero() {
		until = x.since.Add(l.For)
		over = !now.Before(until)
	}
	return until, over || l.above(held)
}

// above says whether held bytes are more than the hard limit allows.
func (l OutputLimit) above(held int) bool { return l.Hard > 0 && held > l.Hard }

// earlier is the earlier one of two deadlines, of which a zero one is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
