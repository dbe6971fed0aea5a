package telemetry

import (
	"sync/atomic"
	"time"
)

// Bounds of the histograms' buckets.
var (
	// A command is answered within a round trip, or Redis is busy with another.
	commandBounds = bounds(0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)
	// A wait is over in a round trip, or lasts until a client gives up.
	waitBounds = bounds(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000)
	// A lock is held for a write or two, or for a batch job.
	holdBounds = bounds(1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 300000, 600000)
	// A renewal is due every third of a lease, 30 s unless set otherwise.
	latenessBounds = bounds(1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 20000)
)

// bounds are given in milliseconds.
func bounds(ms ...float64) (all []time.Duration) {
	for _, b := range ms {
		all = append(all, time.Duration(b*float64(time.Millisecond)))
	}
	return all
}

// instruments are what lock verbs record into, once figures have a reader.
type instruments struct {
	verbDuration, lockWait, lockHold, lateness, scripts *vector
	upstream, proxy                                     [families]*histogram
}

// current is nil while no figures leave the process.
var current atomic.Pointer[instruments]

func newInstruments(h *histograms) *instruments {
	set := &instruments{
		verbDuration: h.add("lockproxy.verb.duration", "From a lock verb's arrival to its reply.", waitBounds, "verb", "outcome"),
		lockWait:     h.add("lockproxy.lock.wait", "From asking for a lock to its grant.", waitBounds, "kind"),
		lockHold:     h.add("lockproxy.lock.hold", "From a lock's grant to its release.", holdBounds, "kind"),
		lateness:     h.add("lockproxy.lock.renewal.lateness", "How late renewals were sent.", latenessBounds),
		scripts:      h.add("lockproxy.script.duration", "From sending a lock script to its reply.", commandBounds, "script"),
	}
	commands := h.add("lockproxy.command.duration", "Commands forwarded: upstream is from sending one to its reply, proxy the rest.", commandBounds, "family", "part")
	for f, name := range familyNames {
		set.upstream[f], set.proxy[f] = commands.of(name, "upstream"), commands.of(name, "proxy")
	}
	return set
}
