package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
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
	handoffs, lost, renewals                            metric.Int64Counter
}

// current is nil while no figures leave the process. OpenTelemetry's own global
// meter would do the same once; this lets Start and Shutdown follow each other.
var current atomic.Pointer[instruments]

// builder makes instruments and gathers what went wrong.
type builder struct {
	meter metric.Meter
	errs  []error
}

func newInstruments(meter metric.Meter, h *histograms) (*instruments, error) {
	b := &builder{meter: meter}
	b.observeAtomics()
	b.observeAges()
	b.observeNodes()
	b.observeUnable()
	b.observeCertificates()
	set := &instruments{
		verbDuration: h.add("lockproxy.verb.duration", "From a lock verb's arrival to its reply.", waitBounds, "verb", "outcome"),
		lockWait:     h.add("lockproxy.lock.wait", "From asking for a lock to its grant.", waitBounds, "kind"),
		lockHold:     h.add("lockproxy.lock.hold", "From a lock's grant to its release.", holdBounds, "kind"),
		lateness:     h.add("lockproxy.lock.renewal.lateness", "How late renewals were sent.", latenessBounds),
		scripts:      h.add("lockproxy.script.duration", "From sending a lock script to its reply.", commandBounds, "script"),
		handoffs:     b.counter("lockproxy.lock.handoffs", "{lock}", "Locks handed from one client of this proxy to the next."),
		lost:         b.counter("lockproxy.lock.lost", "{lock}", "Locks lost while they were held, by the reason that the holder was told."),
		renewals:     b.counter("lockproxy.lock.renewals", "{renewal}", "Leases the watchdog tried to renew."),
	}
	commands := h.add("lockproxy.command.duration", "Commands forwarded: upstream is from sending one to its reply, proxy the rest.", commandBounds, "family", "part")
	for f, name := range familyNames {
		set.upstream[f], set.proxy[f] = commands.of(name, "upstream"), commands.of(name, "proxy")
	}
	b.observeCount("lockproxy.lock.granted", "{lock}", "Locks granted.", set.lockWait)
	return set, errors.Join(b.errs...)
}

// Ages are the oldest hold and the oldest wait of a proxy, found when a collection asks for them.
type Ages func() (hold, wait time.Duration)

var ages atomic.Pointer[Ages]

// ObserveAges has those of this process found by that.
func ObserveAges(find Ages) { ages.Store(&find) }

// observeAges asks once in a collection.
func (b *builder) observeAges() {
	const holdName, waitName = "lockproxy.lock.oldest.hold", "lockproxy.lock.oldest.wait"
	hold, err := b.meter.Float64ObservableGauge(holdName, metric.WithUnit("s"), metric.WithDescription("For how long the oldest lock held through this proxy has been held."))
	b.check(holdName, err)
	wait, err := b.meter.Float64ObservableGauge(waitName, metric.WithUnit("s"), metric.WithDescription("For how long the lock verb has waited that waits longest."))
	b.check(waitName, err)
	_, err = b.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		if find := ages.Load(); find != nil {
			held, waited := (*find)()
			o.ObserveFloat64(hold, held.Seconds())
			o.ObserveFloat64(wait, waited.Seconds())
		}
		return nil
	}, hold, wait)
	b.check(holdName, err)
}

// States are those of a quorum's nodes, one of nodeStates for each; none without a quorum.
type States func() []string

var (
	states     atomic.Pointer[States]
	nodeStates = [...]string{"up", "young", "down"}
)

// ObserveNodes has those of this process found by that.
func ObserveNodes(find States) { states.Store(&find) }

// observeNodes shows each state, also of no node, so that alerts can compare them.
func (b *builder) observeNodes() {
	const name = "lockproxy.quorum.nodes"
	_, err := b.meter.Int64ObservableGauge(name, metric.WithUnit("{node}"), metric.WithDescription("With quorum, its nodes: up, young (started, or their clocks set, too recently to count) or down."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			find := states.Load()
			if find == nil {
				return nil
			}
			all := (*find)()
			if len(all) == 0 {
				return nil
			}
			count := map[string]int64{}
			for _, s := range all {
				count[s]++
			}
			for _, s := range nodeStates {
				o.Observe(count[s], metric.WithAttributes(attribute.String("state", s)))
			}
			return nil
		}))
	b.check(name, err)
}

// Unable is the reason for which locks cannot be had, one of those that were given to ObserveUnable; "": they can.
type Unable func() string

// unable is that of this process, and all reasons that it can give.
type unableFor struct {
	find    Unable
	reasons []string
}

var unable atomic.Pointer[unableFor]

// ObserveUnable has the reason for which this process gives no locks found by that.
func ObserveUnable(reasons []string, find Unable) { unable.Store(&unableFor{find, reasons}) }

// observeUnable shows each reason, also those that are none now, so that alerts end.
func (b *builder) observeUnable() {
	const name = "lockproxy.locks.unavailable"
	_, err := b.meter.Int64ObservableGauge(name, metric.WithUnit("{reason}"), metric.WithDescription("1 for the reason for which locks cannot be had, else 0."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			u := unable.Load()
			if u == nil {
				return nil
			}
			now := u.find()
			for _, reason := range u.reasons {
				is := int64(0)
				if reason == now {
					is = 1
				}
				o.Observe(is, metric.WithAttributes(attribute.String("reason", reason)))
			}
			return nil
		}))
	b.check(name, err)
}

// Ends are the ends of the certificates that this process shows, by file.
type Ends func() map[string]time.Time

var ends atomic.Pointer[Ends]

// ObserveCertificates has those of this process found by that.
func ObserveCertificates(find Ends) { ends.Store(&find) }

// observeCertificates shows moments, and not what is left, so that alerts choose how early they come.
func (b *builder) observeCertificates() {
	const name = "lockproxy.certificate.end"
	_, err := b.meter.Int64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription("When a certificate that lockproxy shows expires, in seconds since 1970."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			find := ends.Load()
			if find == nil {
				return nil
			}
			for file, end := range (*find)() {
				o.Observe(end.Unix(), metric.WithAttributes(attribute.String("file", file)))
			}
			return nil
		}))
	b.check(name, err)
}

// observeAtomics lets a collection read the counters of the commands' path.
func (b *builder) observeAtomics() {
	b.observeGauge("lockproxy.clients", "{client}", "Clients connected.", &Clients)
	b.observeCounter("lockproxy.clients.accepted", "{client}", "Clients let in.", &ClientsAccepted)
	b.observeCounter("lockproxy.clients.rejected", "{client}", "Clients turned away.", &ClientsRejected)
	b.observeCounter("lockproxy.entries.failed", "{client}", "Clients closed for their TLS handshake or PROXY header.", &EntriesFailed)
	b.observeCounter("lockproxy.logins.failed", "{login}", "Wrong passwords of clients, and wrong tokens at the page for operators.", &LoginsFailed)
	b.observeGauge("lockproxy.query.memory", "By", "What counts for max-query-memory, beyond 64 KiB a client.", &QueryBytes)
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
	b.observeCounter("lockproxy.master.switches", "{switch}", "Times another Redis took the place of the present one: the Sentinels named it, or the address led to it.", &MasterSwitches)
	b.observeCounter("lockproxy.pipe.failures", "{connection}", "Connections to Redis lost or not had; what Redis refuses to one user, or closes while nothing is under way, and what lockproxy ends itself, is not counted.", &PipeFailures)
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

// observeCount has a counter of what v times.
func (b *builder) observeCount(name, unit, description string, v *vector) {
	_, err := b.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for _, h := range v.all() {
				o.Observe(h.count(), metric.WithAttributeSet(h.labels))
			}
			return nil
		}))
	b.check(name, err)
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
