package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Histograms are counted here and handed to OpenTelemetry when it collects: to
// record into its own costs ten times as much, which is too much for what is
// done with every command.

const (
	mostBounds = 19
	parts      = 8 // of a histogram, so that processors seldom write to the same memory
)

// places are the parts that are free to be written to: a sync.Pool gives a processor the one again that it used last,
// which is in its cache.
var (
	places    = sync.Pool{New: func() any { n := lastPlace.Add(1) % parts; return &n }}
	lastPlace atomic.Uint32
)

// histogram counts durations by how long they are.
type histogram struct {
	bounds []time.Duration // upper ones; at most mostBounds
	labels attribute.Set
	values [2]string // of the labels
	parts  [parts]struct {
		counts [mostBounds + 1]atomic.Int64
		sum    atomic.Int64
		_      [cacheLine]byte
	}
}

// record counts n things that took so long each.
func (h *histogram) record(took time.Duration, n int64) {
	i := 0
	for i < len(h.bounds) && took > h.bounds[i] {
		i++
	}
	place := places.Get().(*uint32)
	part := &h.parts[*place]
	part.counts[i].Add(n)
	part.sum.Add(int64(took) * n)
	places.Put(place)
}

// point is what has been counted.
func (h *histogram) point(since, now time.Time) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{Attributes: h.labels, StartTime: since, Time: now, BucketCounts: make([]uint64, len(h.bounds)+1)}
	for _, b := range h.bounds {
		p.Bounds = append(p.Bounds, b.Seconds())
	}
	var sum time.Duration
	for part := range h.parts {
		sum += time.Duration(h.parts[part].sum.Load())
		for i := range p.BucketCounts {
			n := uint64(h.parts[part].counts[i].Load())
			p.BucketCounts[i] += n
			p.Count += n
		}
	}
	p.Sum = sum.Seconds()
	return p
}

// vector is the histograms of one name.
type vector struct {
	name, help string
	labelled[histogram]
	recent [recent]atomic.Pointer[histogram] // those asked for last: to look among all costs three times as much
}

const recent = 32

// readers are how many read durations. While there are none, nothing is kept.
var readers atomic.Int32

func (v *vector) record(took time.Duration, first, second string) {
	if readers.Load() > 0 {
		v.of(first, second).record(took, 1)
	}
}

func (v *vector) of(first, second string) *histogram {
	slot := &v.recent[slotOf(first, second)]
	if h := slot.Load(); h != nil && h.values[0] == first && h.values[1] == second {
		return h
	}
	h := v.get(first, second)
	slot.Store(h)
	return h
}

// slotOf is where in recent the histogram of these values is, if it is there.
func slotOf(first, second string) int {
	n := len(first) + 3*len(second)
	if first != "" {
		n += int(first[0])
	}
	return n % recent
}

var vectors []*vector

func durations(name, help string, bounds []time.Duration, labels ...string) *vector {
	v := &vector{name: "lockproxy." + name, help: help}
	copy(v.labels[:], labels)
	v.make = func(labels attribute.Set, values [2]string) *histogram {
		return &histogram{bounds: bounds, labels: labels, values: values}
	}
	vectors = append(vectors, v)
	return v
}

// producer has all durations and figures. It is OpenTelemetry's Producer.
type producer struct{}

// Produce implements sdkmetric.Producer.
func (producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	out := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: scope}}
	now := time.Now()
	for _, v := range vectors {
		data := metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality}
		for _, h := range v.all() {
			if p := h.point(began, now); p.Count > 0 {
				data.DataPoints = append(data.DataPoints, p)
			}
		}
		if len(data.DataPoints) > 0 {
			out.Metrics = append(out.Metrics, metricdata.Metrics{Name: v.name, Description: v.help, Unit: "s", Data: data})
		}
	}
	out.Metrics = appendMetrics(out.Metrics, now)
	return []metricdata.ScopeMetrics{out}, nil
}
