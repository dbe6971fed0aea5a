package backend

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Timing is how long the commands at work take.
type Timing struct {
	began     time.Duration // when they came
	since     time.Duration // when the command before was answered, or else began
	elsewhere time.Duration // spent on commands that were answered here, or went to a connection of the client's own
	run       telemetry.Run // the run that is being gathered
	sent      telemetry.Run // all runs that were sent
	runs      time.Duration // number of runs that were sent
	upstream  time.Duration // for which their replies were waited for
}

// begin is called when commands have come.
func (t *Timing) begin() {
	now := telemetry.Clock()
	*t = Timing{began: now, since: now}
}

// note counts a command of the run.
func (t *Timing) note(c *commandtable.Command) { t.run[c.Family]++ }

// forwarded is called when the run has its replies; upstream is the time for which they were waited for. It returns how
// long the run took in all.
func (t *Timing) forwarded(upstream time.Duration) (took time.Duration) {
	before := t.since
	t.since = telemetry.Clock()
	t.upstream += upstream
	if upstream > 0 { // else it was not sent, or there is no reply
		t.run.Upstream(upstream)
		for f, n := range t.run {
			t.sent[f] += n
		}
		t.runs++
	}
	return t.since - before
}

// Answered is called when a command has been answered here, or went to a connection of the client's own. It returns how
// long that took.
func (t *Timing) Answered() (took time.Duration) {
	now := telemetry.Clock()
	took = now - t.since
	t.elsewhere += took
	t.since = now
	return took
}

// End is called when all replies have been written.
func (t *Timing) End() {
	if t.runs > 0 {
		t.sent.Proxy((telemetry.Clock() - t.began - t.elsewhere - t.upstream) / t.runs)
	}
}
