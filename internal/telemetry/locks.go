package telemetry

import (
	"context"
	"time"
)

// VerbDone records that a lock verb was answered: outcome is one word, "ok",
// "nil" or the error's first word in lower case; took is from its arrival to
// its reply. The span in ctx gets the outcome.
func VerbDone(ctx context.Context, verb, outcome string, took time.Duration) {
	ended(ctx, outcome)
	verbDuration.observe(took, verb, outcome)
}

// LockGranted times a grant of a lock of this kind ("plain", "fair", "read",
// "write") after a wait, which is the round trip alone when the lock was free.
func LockGranted(kind string, waited time.Duration) {
	lockWait.observe(waited, kind, "")
}

// ScriptDone records that Redis has answered one of the scripts that locks use,
// which was sent when Clock said so.
func ScriptDone(script string, sent time.Duration) {
	scripts.observe(Clock()-sent, script, "")
}

// LockReleased records that a lock was given up by its holder, and for how long
// it was held.
func LockReleased(kind string, held time.Duration) {
	lockHold.observe(held, kind, "")
}

// Renewed gives the span in ctx the outcome of a renewal, one word.
func Renewed(ctx context.Context, outcome string) { ended(ctx, outcome) }

// RenewalLate records how long after its due time a renewal was sent; 0 for one
// in time.
func RenewalLate(late time.Duration) {
	lateness.observe(late, "", "")
}
