package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// timing is how long the commands at work take.
type timing struct {
	began     time.Duration // when they came
	since     time.Duration // when the one before was answered, or began
	elsewhere time.Duration // that went by in what was answered here
	run       telemetry.Run // that is being gathered
	sent      telemetry.Run // all that were sent
	runs      time.Duration // how many were
}

// begin is called when commands have come.
func (t *timing) begin() {
	now := telemetry.Clock()
	*t = timing{began: now, since: now}
}

// note counts a command of the run.
func (t *timing) note(c *commandtable.Command) {
	if c == nil {
		t.run[telemetry.Other]++
		return
	}
	t.run[c.Family]++
}

// forwarded is called when the run has its replies; upstream had it for so long.
func (t *timing) forwarded(upstream time.Duration) {
	t.since = telemetry.Clock()
	if upstream > 0 { // else it was not sent, or there is no reply
		t.run.Upstream(upstream)
		for f, n := range t.run {
			t.sent[f] += n
		}
		t.runs++
	}
}

// answered is called when a command has been answered here.
func (t *timing) answered() {
	now := telemetry.Clock()
	t.elsewhere += now - t.since
	t.since = now
}

// end is called when all replies have been written; upstream had the runs for so long.
func (t *timing) end(upstream time.Duration) {
	if t.runs > 0 {
		t.sent.Proxy((telemetry.Clock() - t.began - t.elsewhere - upstream) / t.runs)
	}
}
