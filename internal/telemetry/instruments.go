package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// Bounds of the histograms' buckets, in seconds.
var (
	// A wait is over in a round trip, or lasts until a client gives up.
	waitBounds = []float64{
		0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
	}
	// A lock is held for a write or two, or for a batch job.
	holdBounds = []float64{
		0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
	}
	// A renewal is due every third of a lease, 30 s unless set otherwise.
	latenessBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20}
)

// instruments are what lock verbs record into, once figures have a reader.
type instruments struct {
	verbDuration, lockWait, lockHold, lateness metric.Float64Histogram
	granted, lost, renewals                    metric.Int64Counter
}

// current is nil while no figures leave the process. OpenTelemetry's own global
// meter would do the same once; this lets Start and Shutdown follow each other.
var current atomic.Pointer[instruments]

// builder makes instruments and gathers what went wrong.
type builder struct {
	meter metric.Meter
	errs  []error
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	b := &builder{meter: meter}
	b.observeAtomics()
	set := &instruments{
		verbDuration: b.histogram("lockproxy.verb.duration", "Time from a lock verb's arrival to its reply.", waitBounds),
		lockWait:     b.histogram("lockproxy.lock.wait", "Time from asking for a lock to its grant.", waitBounds),
		lockHold:     b.histogram("lockproxy.lock.hold", "Time from a lock's grant to its release.", holdBounds),
		lateness:     b.histogram("lockproxy.lock.renewal.lateness", "How late renewals were sent.", latenessBounds),
		granted:      b.counter("lockproxy.lock.granted", "{lock}", "Locks granted."),
		lost:         b.counter("lockproxy.lock.lost", "{lock}", "Locks lost while they were held."),
		renewals:     b.counter("lockproxy.lock.renewals", "{renewal}", "Leases the watchdog tried to renew."),
	}
	return set, errors.Join(b.errs...)
}

// observeAtomics lets a collection read the counters of the commands' path.
func (b *builder) observeAtomics() {
	b.observeGauge("lockproxy.clients", "{client}", "Clients connected.", &Clients)
	b.observeCounter("lockproxy.clients.accepted", "{client}", "Clients let in.", &ClientsAccepted)
	b.observeCounter("lockproxy.clients.rejected", "{client}", "Clients turned away.", &ClientsRejected)
	b.observeCounter("lockproxy.entries.failed", "{client}", "Clients closed for their TLS handshake or PROXY header.", &EntriesFailed)
	b.observeGauge("lockproxy.query.memory", "By", "Unfinished commands beyond 64 KiB a client.", &QueryBytes)
	b.observeCounter("lockproxy.query.dropped", "{client}", "Clients dropped at max-query-memory.", &QueryDropped)
	b.observeGauge("lockproxy.reply.memory", "By", "Unwritten replies beyond 64 KiB a client.", &ReplyBytes)
	b.observeCounter("lockproxy.reply.dropped", "{client}", "Clients dropped at max-reply-memory.", &ReplyDropped)
	b.observeCounter("lockproxy.output.dropped", "{client}", "Clients dropped at client-output-buffer-limit.", &OutputDropped)
	b.observeCounter("lockproxy.commands.forwarded", "{command}", "Commands forwarded to Redis.", &Commands)
	b.observeGauge("lockproxy.pipes", "{connection}", "Connections to Redis that carry clients' commands.", &Pipes)
	b.observeGauge("lockproxy.dedicated", "{connection}", "Connections to Redis that one client has to itself, idle ones too.", &Dedicated)
	b.observeGauge("lockproxy.upstream.connections", "{connection}", "Connections to Redis that count for max-upstream-connections.", &Upstream)
	b.observeGauge("lockproxy.upstream.own", "{connection}", "Connections to Redis for locks, passwords and the proxy's own questions, which max-upstream-connections leaves out.", &UpstreamOwn)
	b.observeCounter("lockproxy.upstream.refused", "{connection}", "Connections to Redis refused at max-upstream-connections.", &UpstreamRefused)
	b.observeCounter("lockproxy.replica.reads", "{command}", "Commands answered by a cluster's replicas.", &ReplicaReads)
	b.observeCounter("lockproxy.scripts.reloaded", "{script}", "Clients' scripts loaded again after Redis had lost them.", &ScriptsReloaded)
	b.observeCounter("lockproxy.pipe.reconnects", "{connection}", "Connections to Redis made again after a loss.", &PipeReconnects)
	b.observeCounter("lockproxy.master.switches", "{switch}", "Times the Sentinels named another master.", &MasterSwitches)
	b.observeCounter("lockproxy.pipe.failures", "{connection}", "Connections to Redis lost or refused.", &PipeFailures)
	b.observeGauge("lockproxy.locks.held", "{lock}", "Locks held through this proxy.", &LocksHeld)
	b.observeGauge("lockproxy.locks.waiting", "{verb}", "Lock verbs that wait.", &LocksWaiting)
}

func (b *builder) observeGauge(name, unit, description string, g *Gauge) {
	_, err := b.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(g.Value())
			return nil
		}))
	b.check(name, err)
}

func (b *builder) observeCounter(name, unit, description string, c *Counter) {
	_, err := b.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(c.Value())
			return nil
		}))
	b.check(name, err)
}

func (b *builder) histogram(name, description string, bounds []float64) metric.Float64Histogram {
	h, err := b.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(bounds...))
	b.check(name, err)
	return h
}

func (b *builder) counter(name, unit, description string) metric.Int64Counter {
	c, err := b.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	b.check(name, err)
	return c
}

func (b *builder) check(name string, err error) {
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("instrument %s: %w", name, err))
	}
}
