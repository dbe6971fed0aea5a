package downstream

import (
	"testing"
	"testing/synctest"
	"time"
)

// How long a client may be silent, from the beginning of a read on.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	const none = 0
	for name, c := range map[string]struct {
		bounds           Bounds
		came             bool
		mustAuthenticate bool
		unfinished       int
		mayIdle          bool
		want             time.Duration // none: for ever
	}{
		"no limits":                          {want: none},
		"before the first command":           {bounds: Bounds{HandshakeTimeout: time.Second, IdleTimeout: time.Hour}, want: time.Second},
		"after it":                           {bounds: Bounds{HandshakeTimeout: time.Second}, came: true, want: none},
		"without the password":               {bounds: Bounds{HandshakeTimeout: time.Second}, came: true, mustAuthenticate: true, want: time.Second},
		"idle":                               {bounds: Bounds{IdleTimeout: time.Minute}, came: true, want: time.Minute},
		"it may be idle":                     {bounds: Bounds{IdleTimeout: time.Minute}, came: true, mayIdle: true, want: none},
		"it may be idle, but not outside":    {bounds: Bounds{IdleTimeout: time.Minute, HandshakeTimeout: time.Second}, mayIdle: true, want: time.Second},
		"half a command":                     {came: true, unfinished: 1, want: progressWindow},
		"half a command, which is not idle":  {bounds: Bounds{IdleTimeout: time.Second}, came: true, unfinished: 1, mayIdle: true, want: progressWindow},
		"half a command, outside":            {bounds: Bounds{HandshakeTimeout: time.Second}, unfinished: 1, want: time.Second},
		"half a command, outside for longer": {bounds: Bounds{HandshakeTimeout: time.Hour}, unfinished: 1, want: progressWindow},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := deadlines{came: c.came, outside: time.Now()}
			d.setDue(&c.bounds, c.mustAuthenticate, c.unfinished)
			if c.want != none {
				time.Sleep(c.want - time.Nanosecond)
				if d.passed(c.mayIdle) {
					t.Errorf("%s: it has passed before %v", name, c.want)
				}
				time.Sleep(time.Nanosecond)
			} else {
				time.Sleep(24 * time.Hour)
			}
			if d.passed(c.mayIdle) != (c.want != none) {
				t.Errorf("%s: passed: %v after %v", name, d.passed(c.mayIdle), c.want)
			}
		})
	}
}

// A command that is slow to come gets time as long as it grows, and one that follows a whole one gets all of it.
func TestWindowOfAnUnfinishedCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, b := deadlines{came: true}, &Bounds{}
		for _, c := range []struct {
			grown int
			came  bool
			left  time.Duration
		}{
			{1, false, progressWindow},
			{progressBytes / 2, false, progressWindow / 2},
			{progressBytes / 2, false, progressWindow},
			{1, true, progressWindow},
			{1, false, progressWindow / 2},
		} {
			d.grown += c.grown
			if c.came {
				d.commandCame()
			}
			if d.setDue(b, false, 1); time.Until(d.due) != c.left {
				t.Errorf("%+v: due in %v", c, time.Until(d.due))
			}
			time.Sleep(progressWindow / 2)
		}
	})
}
