package backend

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Timing is how long the commands at work take.
type Timing struct {
	began     time.Duration // when they came
	elsewhere bool          // some were answered here, or went to a connection of the client's own
	run       telemetry.Run // the run that is being gathered
	sent      telemetry.Run // all runs that were sent
	runs      time.Duration // number of runs that were sent
	upstream  time.Duration // for which their replies were waited for
}

// begin is called when commands have come.
func (t *Timing) begin() { *t = Timing{began: telemetry.Clock()} }

// note counts a command of the run.
func (t *Timing) note(c *commandtable.Command) { t.run[c.Family]++ }

// forwarded is called when the run has its replies; upstream is the time for which they were waited for.
func (t *Timing) forwarded(upstream time.Duration) {
	t.upstream += upstream
	if upstream > 0 { // else it was not sent, or there is no reply
		t.run.Upstream(upstream)
		for f, n := range t.run {
			t.sent[f] += n
		}
		t.runs++
	}
}

// Elsewhere says that not all is forwarded: a command is answered here, goes to a connection of the client's own, or
// waits for something else than its reply. What the proxy itself takes for the others is then not known.
func (t *Timing) Elsewhere() { t.elsewhere = true }

// End is called when all replies have been written.
func (t *Timing) End() {
	if t.runs > 0 && !t.elsewhere {
		t.sent.Proxy((telemetry.Clock() - t.began - t.upstream) / t.runs)
	}
}
