package telemetry

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Figure is a number that lockproxy tells of itself: at /metrics and by OTLP under its name, in INFO and LOCKPROXY
// STATS under its field. Each is declared once, here, in the order of INFO.
type Figure struct {
	Name   string // Prometheus has lockproxy_clients_accepted_total for lockproxy.clients.accepted
	Field  string // it stands behind lockproxy_ in INFO; "": it is not there
	Unit   string
	Help   string
	Labels []string
	Only   string // the value of a label that the field counts; "": all
	Total  bool   // it only grows; else it is what there is now
	// Age says that it is read in ms, which is what its field has, and told in seconds elsewhere. Each lock is looked at
	// to find it: INFO, which anybody may ask often, does not have it.
	Age  bool
	read Reading // nil: each proxy has its own, in Readings
}

// Show takes what a figure is now, for values of its labels.
type Show func(n int64, values ...string)

// Reading shows what a figure is now: once if it has no labels.
type Reading func(Show)

// Number reads a figure without labels.
func Number[N int | int64](now func() N) Reading { return func(show Show) { show(int64(now())) } }

// What is counted on the way of every command, where a proxy is not asked for its own. Counting is one atomic addition.
var (
	Clients = ofProxy(Figure{Name: "lockproxy.clients", Field: "clients", Unit: "{client}",
		Help: "Clients connected."})
	ClientsAccepted = counter("lockproxy.clients.accepted", "clients_accepted", "{client}", "Clients let in.")
	ClientsRejected = counter("lockproxy.clients.rejected", "clients_rejected", "{client}", "Clients turned away.")
	EntriesFailed   = counter("lockproxy.entries.failed", "entries_failed", "{client}",
		"Clients closed for their TLS handshake or PROXY header.")
	LoginsFailed = counter("lockproxy.logins.failed", "logins_failed", "{login}",
		"Wrong passwords of clients, and wrong tokens at the page for operators.")
	QueryBytes = gauge("lockproxy.query.memory", "query_memory", "By",
		"What counts for max-query-memory, beyond 64 KiB a client.")
	QueryDropped  = counter("lockproxy.query.dropped", "query_dropped", "{client}", "Clients dropped at max-query-memory.")
	ReplyBytes    = gauge("lockproxy.reply.memory", "reply_memory", "By", "Unwritten replies beyond 64 KiB a client.")
	ReplyDropped  = counter("lockproxy.reply.dropped", "reply_dropped", "{client}", "Clients dropped at max-reply-memory.")
	OutputDropped = counter("lockproxy.output.dropped", "output_dropped", "{client}",
		"Clients dropped at client-output-buffer-limit.")
	UpstreamConnections = ofProxy(Figure{Name: "lockproxy.upstream.connections", Field: "upstream_connections",
		Unit: "{connection}", Help: "Connections to Redis that count for max-upstream-connections."})
	UpstreamOwn = gauge("lockproxy.upstream.own", "upstream_connections_own", "{connection}", "Connections to Redis for "+
		"locks, passwords and the proxy's own questions, which max-upstream-connections leaves out.")
	UpstreamRefused = counter("lockproxy.upstream.refused", "upstream_connections_refused", "{connection}",
		"Connections to Redis refused at max-upstream-connections.")
	Dedicated = gauge("lockproxy.dedicated", "dedicated", "{connection}",
		"Connections to Redis that one client has to itself, idle ones too.")
	Pipes        = gauge("lockproxy.pipes", "pipes", "{connection}", "Connections to Redis that carry clients' commands.")
	PipeFailures = counter("lockproxy.pipe.failures", "pipe_failures", "{connection}", "Connections to Redis lost or not "+
		"had; what Redis refuses to one user, or closes while nothing is under way, and what lockproxy ends itself, is not "+
		"counted.")
	PipeReconnects = counter("lockproxy.pipe.reconnects", "pipe_reconnects", "{connection}",
		"Connections to Redis made again after a loss.")
	MasterSwitches = counter("lockproxy.master.switches", "", "{switch}", "Times another Redis took the place of the "+
		"present one: the Sentinels named it, or the address led to it.")
	Commands        = counter("lockproxy.commands.forwarded", "forwarded", "{command}", "Commands forwarded to Redis.")
	ReplicaReads    = counter("lockproxy.replica.reads", "", "{command}", "Commands answered by a cluster's replicas.")
	ScriptsReloaded = counter("lockproxy.scripts.reloaded", "scripts_reloaded", "{script}",
		"Clients' scripts loaded again after Redis had lost them.")
	ReloadGood = gauge("lockproxy.config.last.reload.success", "config_last_reload_success", "{reload}", "1 if the "+
		"settings were good when they were read last, at SIGHUP, LOCKPROXY RELOAD or the start; 0 if they were not, and "+
		"the old ones stay.")
	ReloadedAt = gauge("lockproxy.config.last.reload", "config_last_reload_seconds", "s",
		"When the settings were read last, in seconds since 1970.")
)

// Of locks, by the proxy that keeps them.
var (
	LocksHeld = ofProxy(Figure{Name: "lockproxy.locks.held", Field: "locks_held", Unit: "{lock}",
		Help: "Locks held through this proxy."})
	LocksWaiting = ofProxy(Figure{Name: "lockproxy.locks.waiting", Field: "locks_waiting", Unit: "{verb}",
		Help: "Lock verbs that wait."})
	LocksGranted = ofProxy(Figure{Name: "lockproxy.lock.granted", Field: "locks_granted", Unit: "{lock}",
		Help: "Locks granted.", Labels: []string{"kind"}, Total: true})
	LocksLost = ofProxy(Figure{Name: "lockproxy.lock.lost", Field: "locks_lost", Unit: "{lock}",
		Help:   "Locks lost while they were held, by the reason that the holder was told.",
		Labels: []string{"kind", "reason"}, Total: true})
	LocksRenewed = ofProxy(Figure{Name: "lockproxy.lock.renewals", Field: "locks_renewed", Unit: "{renewal}",
		Help: "Leases the watchdog tried to renew.", Labels: []string{"outcome"}, Only: "ok", Total: true})
	LocksHandedOff = ofProxy(Figure{Name: "lockproxy.lock.handoffs", Unit: "{lock}",
		Help: "Locks handed from one client of this proxy to the next.", Labels: []string{"kind"}, Total: true})
	OldestHold = ofProxy(Figure{Name: "lockproxy.lock.oldest.hold", Field: "oldest_hold_ms", Unit: "s", Age: true,
		Help: "For how long the oldest lock held through this proxy has been held."})
	LongestWait = ofProxy(Figure{Name: "lockproxy.lock.oldest.wait", Field: "longest_wait_ms", Unit: "s", Age: true,
		Help: "For how long the lock verb has waited that waits longest."})
	LocksUnavailable = ofProxy(Figure{Name: "lockproxy.locks.unavailable", Unit: "{reason}", Labels: []string{"reason"},
		Help: "1 for the reason for which locks cannot be had, else 0."})
	QuorumNodes = ofProxy(Figure{Name: "lockproxy.quorum.nodes", Unit: "{node}", Labels: []string{"state"},
		Help: "With quorum, its nodes: up, young (started, or their clocks set, too recently to count) or down."})
)

// CertificateEnd is a moment, and not what is left, so that alerts choose how early they come.
var CertificateEnd = ofProxy(Figure{Name: "lockproxy.certificate.end", Unit: "s", Labels: []string{"file"},
	Help: "When a certificate that lockproxy shows expires, in seconds since 1970."})

var figures []*Figure

func ofProxy(f Figure) *Figure {
	figures = append(figures, &f)
	return &f
}

func counter(name, field, unit, help string) *Counter {
	c := new(Counter)
	ofProxy(Figure{Name: name, Field: field, Unit: unit, Help: help, Total: true, read: Number(c.Value)})
	return c
}

func gauge(name, field, unit, help string) *Gauge {
	g := new(Gauge)
	ofProxy(Figure{Name: name, Field: field, Unit: unit, Help: help, read: Number(g.Value)})
	return g
}

// Readings say how those figures are read that each proxy has of its own.
type Readings map[*Figure]Reading

var published atomic.Pointer[Readings]

// Publish has the figures of this process' proxy read by these, beside those that were published before.
func Publish(more Readings) {
	all := Readings{}
	if before := published.Load(); before != nil {
		maps.Copy(all, *before)
	}
	maps.Copy(all, more)
	published.Store(&all)
}

// of is how f is read; nil: it cannot be.
func (r Readings) of(f *Figure) Reading {
	if f.read != nil {
		return f.read
	}
	return r[f]
}

// Fields tells of each figure that has a field what it is now, and of ages if they are wanted.
func (r Readings) Fields(ages bool, tell func(field string, n int64)) {
	for _, f := range figures {
		read := r.of(f)
		if read == nil || f.Field == "" || f.Age && !ages {
			continue
		}
		sum := int64(0)
		read(func(n int64, values ...string) {
			if f.Only == "" || slices.Contains(values, f.Only) {
				sum += n
			}
		})
		tell(f.Field, sum)
	}
}

// appendMetrics appends all figures as OpenTelemetry has them.
func appendMetrics(to []metricdata.Metrics, now time.Time) []metricdata.Metrics {
	var r Readings
	if of := published.Load(); of != nil {
		r = *of
	}
	for _, f := range figures {
		read := r.of(f)
		if read == nil {
			continue
		}
		if data := f.data(read, now); data != nil {
			to = append(to, metricdata.Metrics{Name: f.Name, Description: f.Help, Unit: f.Unit, Data: data})
		}
	}
	return to
}

// data is what the figure is now; nil: nothing.
func (f *Figure) data(read Reading, now time.Time) metricdata.Aggregation {
	var points []metricdata.DataPoint[int64]
	read(func(n int64, values ...string) {
		labels := make([]attribute.KeyValue, len(values))
		for i, value := range values {
			labels[i] = attribute.String(f.Labels[i], value)
		}
		points = append(points,
			metricdata.DataPoint[int64]{Attributes: attribute.NewSet(labels...), StartTime: began, Time: now, Value: n})
	})
	switch {
	case len(points) == 0:
		return nil
	case f.Age:
		age := metricdata.DataPoint[float64]{StartTime: began, Time: now, Value: float64(points[0].Value) / 1000}
		return metricdata.Gauge[float64]{DataPoints: []metricdata.DataPoint[float64]{age}}
	case f.Total:
		return metricdata.Sum[int64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	}
	return metricdata.Gauge[int64]{DataPoints: points}
}
