package downstream

import "time"

const (
	progressWindow = 30 * time.Second // an unfinished command must grow by progressBytes in each, or end
	progressBytes  = 16 << 10
)

var past = time.Unix(1, 0)

// deadlines say how long a client may send nothing. The goroutine that reads owns them.
type deadlines struct {
	came    bool      // a first whole command has come
	outside time.Time // since when that command, or the authentication, has been waited for; zero: neither is
	window  time.Time // the end of the unfinished command's window; zero: no command is unfinished
	grown   int       // bytes of that command in this window

	due    time.Time // when the read in progress counts as too late; zero: never
	idling bool      // due is the idle time-out, which does not end clients that may idle
}

// setDue sets due for a read: the earliest of the deadlines for the hand-shake, for an idle client, and for an
// unfinished command.
func (d *deadlines) setDue(b *Bounds, mustAuthenticate bool, unfinished int) {
	d.due, d.idling = d.handshake(b.HandshakeTimeout, mustAuthenticate), false
	switch {
	case unfinished > 0:
		if d.window.IsZero() || d.grown >= progressBytes {
			d.window, d.grown = time.Now().Add(progressWindow), 0
		}
		d.due = earlier(d.due, d.window)
		return
	case b.IdleTimeout > 0:
		idle := time.Now().Add(b.IdleTimeout)
		d.idling = d.due.IsZero() || idle.Before(d.due)
		d.due = earlier(d.due, idle)
	}
	d.window = time.Time{}
}

// handshake is when the client must have sent its first whole command and, where Redis asks for a password, have
// authenticated; zero: it has, or there is no limit. A client that must authenticate anew, for example after RESET, has
// the whole time again.
func (d *deadlines) handshake(limit time.Duration, mustAuthenticate bool) time.Time {
	switch { // also while there is no limit, because one may be set later
	case d.came && !mustAuthenticate:
		d.outside = time.Time{}
		return time.Time{}
	case d.outside.IsZero():
		d.outside = time.Now()
	}
	if limit > 0 {
		return d.outside.Add(limit)
	}
	return time.Time{}
}

// commandCame notes a whole command: what the client has begun since gets a window of its own.
func (d *deadlines) commandCame() { d.came, d.window = true, time.Time{} }

// passed says whether the client has been silent for too long.
func (d *deadlines) passed(mayIdle bool) bool {
	if d.due.IsZero() || d.idling && mayIdle {
		return false
	}
	return !time.Now().Before(d.due)
}
