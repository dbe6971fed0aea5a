package telemetry

import "time"

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

// The durations. They are kept while somebody reads them.
var (
	verbDuration = durations("verb.duration", "From a lock verb's arrival to its reply.", waitBounds, "verb", "outcome")
	lockWait     = durations("lock.wait", "From asking for a lock to its grant.", waitBounds, "kind")
	lockHold     = durations("lock.hold", "From a lock's grant to its release.", holdBounds, "kind")
	lateness     = durations("lock.renewal.lateness", "How late renewals were sent.", latenessBounds)
	scripts      = durations("script.duration", "From sending a lock script to its reply.", commandBounds, "script")
	commands     = durations("command.duration", "Commands forwarded: upstream is from sending one to its reply, proxy "+
		"the rest.", commandBounds, "family", "part")
	upstream, proxy = ofFamilies("upstream"), ofFamilies("proxy")
)

// ofFamilies are those of a part of the time of commands: that of each family is found without looking for it.
func ofFamilies(part string) (all [families]*histogram) {
	for f, name := range familyNames {
		all[f] = commands.get(name, part)
	}
	return all
}
