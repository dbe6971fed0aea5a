package telemetry

import (
	"context"
	"time"
)

// Each family of attribute values, built once per combination. The values are
// words of our own (a verb, an outcome, a kind of lock, a reason): few, fixed.
var (
	kindLabels    = labelled[addOptions]{labels: [2]string{"kind"}, make: newAddOptions}
	lossLabels    = labelled[addOptions]{labels: [2]string{"kind", "reason"}, make: newAddOptions}
	renewalLabels = labelled[addOptions]{labels: [2]string{"outcome"}, make: newAddOptions}
)

// VerbDone records that a lock verb was answered: outcome is one word, "ok",
// "nil" or the error's first word in lower case; took is from its arrival to
// its reply. The span in ctx gets the outcome.
func VerbDone(ctx context.Context, verb, outcome string, took time.Duration) {
	ended(ctx, outcome)
	if set := current.Load(); set != nil {
		set.verbDuration.of(verb, outcome).record(took, 1)
	}
}

// LockGranted records a grant of a lock of this kind ("plain", "fair", "read",
// "write") after a wait, which is the round trip alone when the lock was free.
func LockGranted(ctx context.Context, kind string, waited time.Duration) {
	if set := current.Load(); set != nil {
		set.lockWait.of(kind, "").record(waited, 1)
	}
}

// HandedOff records that a lock went from its holder to the next client without
// anybody else having it between.
func HandedOff(ctx context.Context, kind string) {
	if set := current.Load(); set != nil {
		set.handoffs.Add(ctx, 1, *kindLabels.get(kind, "")...)
	}
}

// ScriptDone records that Redis has answered one of the scripts that locks use.
func ScriptDone(script string, took time.Duration) {
	if set := current.Load(); set != nil {
		set.scripts.of(script, "").record(took, 1)
	}
}

// LockReleased records that a lock was given up by its holder, and for how long
// it was held.
func LockReleased(ctx context.Context, kind string, held time.Duration) {
	if set := current.Load(); set != nil {
		set.lockHold.of(kind, "").record(held, 1)
	}
}

// LockLost records that n locks of a kind ended without their holders; reason is one
// word. 0 has the count shown from then on.
func LockLost(ctx context.Context, kind, reason string, n int) {
	if set := current.Load(); set != nil {
		set.lost.Add(ctx, int64(n), *lossLabels.get(kind, reason)...)
	}
}

// Renewal records n renewals that ended with the same outcome, one word. The span in ctx gets it.
func Renewal(ctx context.Context, outcome string, n int) {
	ended(ctx, outcome)
	if set := current.Load(); set != nil {
		set.renewals.Add(ctx, int64(n), *renewalLabels.get(outcome, "")...)
	}
}

// RenewalLate records how long after its due time a renewal was sent; 0 for one
// in time.
func RenewalLate(ctx context.Context, late time.Duration) {
	if set := current.Load(); set != nil {
		set.lateness.of("", "").record(late, 1)
	}
}
