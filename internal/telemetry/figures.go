package telemetry

import (
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Figure is a number that lockproxy tells of itself: at /metrics and by OTLP under its name, in INFO and LOCKPROXY
// STATS under its field, behind lockproxy_. Each is declared once, here, in the order of INFO.
type Figure struct {
	name   string // Prometheus has lockproxy_clients_rejected_total for lockproxy.clients.rejected
	field  string // "": INFO does not have it
	unit   string
	help   string
	labels []string
	grows  bool    // else it is what there is now
	only   string  // the value of a label that the field counts; "": all
	read   Reading // nil: each proxy has its own, in Readings
}

// Show takes what a figure is now, for values of its labels.
type Show func(n int64, values ...string)

// Reading shows what a figure is now: once if it has no labels.
type Reading func(Show)

// Number reads a figure without labels.
func Number[N int | int64](now func() N) Reading { return func(show Show) { show(int64(now())) } }

// The figures. Those of a certificate's end and of locks are read from the proxy that has them.
var (
	Clients         = ofProxy("clients", "clients", "{client}", "Clients connected.")
	ClientsRejected = counter("clients.rejected", "clients_rejected", "{client}", "Clients turned away.")
	EntriesFailed   = counter("entries.failed", "entries_failed", "{client}",
		"Clients closed for their TLS handshake or PROXY header.")
	LoginsFailed = counter("logins.failed", "logins_failed", "{login}",
		"Wrong passwords of clients, and wrong tokens at the page for operators.")
	QueryBytes = gauge("query.memory", "query_memory", "By",
		"What counts for max-query-memory, beyond 64 KiB a client.")
	QueryDropped  = counter("query.dropped", "query_dropped", "{client}", "Clients dropped at max-query-memory.")
	ReplyBytes    = gauge("reply.memory", "reply_memory", "By", "Unwritten replies beyond 64 KiB a client.")
	ReplyDropped  = counter("reply.dropped", "reply_dropped", "{client}", "Clients dropped at max-reply-memory.")
	OutputDropped = counter("output.dropped", "output_dropped", "{client}",
		"Clients dropped at client-output-buffer-limit.")
	UpstreamConnections = ofProxy("upstream.connections", "upstream_connections", "{connection}",
		"Connections to Redis that count for max-upstream-connections.")
	UpstreamOwn = gauge("upstream.own", "upstream_connections_own", "{connection}", "Connections to Redis for locks, "+
		"passwords and the proxy's own questions, which max-upstream-connections leaves out.")
	UpstreamRefused = counter("upstream.refused", "upstream_connections_refused", "{connection}",
		"Connections to Redis refused at max-upstream-connections.")
	Dedicated = gauge("dedicated", "dedicated", "{connection}",
		"Connections to Redis that one client has to itself, idle ones too.")
	Pipes        = gauge("pipes", "pipes", "{connection}", "Connections to Redis that carry clients' commands.")
	PipeFailures = counter("pipe.failures", "pipe_failures", "{connection}", "Connections to Redis lost or not had; what "+
		"Redis refuses to one user, or closes while nothing is under way, and what lockproxy ends itself, is not counted.")
	PipeReconnects = counter("pipe.reconnects", "pipe_reconnects", "{connection}",
		"Connections to Redis made again after a loss.")
	MasterSwitches = counter("master.switches", "", "{switch}", "Times another Redis took the place of the present one: "+
		"the Sentinels named it, or the address led to it.")
	Commands   = counter("commands.forwarded", "forwarded", "{command}", "Commands forwarded to Redis.")
	ReloadGood = gauge("config.last.reload.success", "config_last_reload_success", "{reload}", "1 if the settings were "+
		"good when they were read last, at SIGHUP, LOCKPROXY RELOAD or the start; 0 if they were not, and the old ones stay.")
	ReloadedAt = gauge("config.last.reload", "config_last_reload_seconds", "s",
		"When the settings were read last, in seconds since 1970.")
	LinesDropped = ofProxy("lines.dropped", "lines_dropped", "{line}",
		"Lines of the log and of event-log that were not written.").total("")
	FileUnusable = ofProxy("file.unusable", "files_unusable", "{file}", "1 for a file of certificates or passwords that has "+
		"changed and cannot be used, while the old ones stay, else 0.", "file")
	CertificateEnd = ofProxy("certificate.end", "", "s", "When the first certificate in a file ends, in seconds since "+
		"1970: those that lockproxy shows, with their chains, and the authorities that it trusts.", "file")

	LocksHeld    = ofProxy("locks.held", "locks_held", "{lock}", "Locks held through this proxy.")
	LocksWaiting = ofProxy("locks.waiting", "locks_waiting", "{verb}", "Lock verbs that wait.")
	LocksGranted = ofProxy("lock.granted", "locks_granted", "{lock}", "Locks granted.", "kind").total("")
	LocksLost    = ofProxy("lock.lost", "locks_lost", "{lock}",
		"Locks lost while they were held, by the reason that the holder was told.", "kind", "reason").total("")
	LocksEnded = ofProxy("lock.ended", "locks_ended", "{lock}", "Locks of connections that ended as was asked for: "+
		"their lease was over, or they were freed by force.", "kind", "reason").total("")
	LocksRenewed = ofProxy("lock.renewals", "locks_renewed", "{renewal}", "Leases the watchdog tried to renew.",
		"outcome").total("ok")
	LocksHandedOff = ofProxy("lock.handoffs", "", "{lock}", "Locks handed from one client of this proxy to the next.",
		"kind").total("")
	OldestHold = ofProxy("lock.oldest.hold", "oldest_hold_ms", ages,
		"For how long the oldest lock held through this proxy has been held.")
	LongestWait = ofProxy("lock.oldest.wait", "longest_wait_ms", ages,
		"For how long the lock verb has waited that waits longest.")
	LocksUnavailable = ofProxy("locks.unavailable", "", "{reason}",
		"1 for the reason for which locks cannot be had, else 0.", "reason")
	QuorumNodes = ofProxy("quorum.nodes", "", "{node}", "With quorum, its nodes: up, young (started, or their clocks set, "+
		"too recently to count) or down.", "state")
)

// ages is the unit of those that are read in ms, which is what their fields have, and told in seconds elsewhere. Each
// lock is looked at to find them: INFO, which anybody may ask often, does not have them.
const ages = "ms"

var figures []*Figure

func ofProxy(name, field, unit, help string, labels ...string) *Figure {
	f := &Figure{name: "lockproxy." + name, field: field, unit: unit, help: help, labels: labels}
	figures = append(figures, f)
	return f
}

// total says that a figure only grows, and of its labels' values which one the field counts; "": all.
func (f *Figure) total(only string) *Figure {
	f.grows, f.only = true, only
	return f
}

func counter(name, field, unit, help string) *Counter {
	c := new(Counter)
	ofProxy(name, field, unit, help).total("").read = Number(c.Value)
	return c
}

func gauge(name, field, unit, help string) *Gauge {
	g := new(Gauge)
	ofProxy(name, field, unit, help).read = Number(g.Value)
	return g
}

// Readings say how those figures are read that each proxy has of its own.
type Readings map[*Figure]Reading

var published atomic.Pointer[Readings]

// Publish has the figures of this process' proxy read by these.
func Publish(all Readings) { published.Store(&all) }

// of is how f is read; nil: it cannot be.
func (r Readings) of(f *Figure) Reading {
	if f.read != nil {
		return f.read
	}
	return r[f]
}

// Fields tells of each figure that has a field what it is now, and of ages if they are wanted.
func (r Readings) Fields(withAges bool, tell func(field string, n int64)) {
	for _, f := range figures {
		read := r.of(f)
		if read == nil || f.field == "" || f.unit == ages && !withAges {
			continue
		}
		sum := int64(0)
		read(func(n int64, values ...string) {
			if f.only == "" || slices.Contains(values, f.only) {
				sum += n
			}
		})
		tell(f.field, sum)
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
		unit := f.unit
		if unit == ages {
			unit = "s"
		}
		if data := f.data(read, now); data != nil {
			to = append(to, metricdata.Metrics{Name: f.name, Description: f.help, Unit: unit, Data: data})
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
			labels[i] = attribute.String(f.labels[i], value)
		}
		points = append(points,
			metricdata.DataPoint[int64]{Attributes: attribute.NewSet(labels...), StartTime: began, Time: now, Value: n})
	})
	switch {
	case len(points) == 0:
		return nil
	case f.unit == ages:
		age := metricdata.DataPoint[float64]{StartTime: began, Time: now, Value: float64(points[0].Value) / 1000}
		return metricdata.Gauge[float64]{DataPoints: []metricdata.DataPoint[float64]{age}}
	case f.grows:
		return metricdata.Sum[int64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	}
	return metricdata.Gauge[int64]{DataPoints: points}
}
