package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Histograms are counted here and handed to OpenTelemetry when it collects: to
// record into its own costs ten times as much, which is too much for what is
// done with every command.

const mostBounds = 19

// histogram counts durations by how long they are.
type histogram struct {
	bounds []time.Duration // upper ones; at most mostBounds
	labels attribute.Set
	counts [mostBounds + 1]atomic.Int64
	sum    atomic.Int64
}

// observe counts n things that took so long each.
func (h *histogram) observe(took time.Duration, n int64) {
	if !kept.Load() {
		return
	}
	i := 0
	for i < len(h.bounds) && took > h.bounds[i] {
		i++
	}
	h.counts[i].Add(n)
	h.sum.Add(int64(took) * n)
}

// point is what has been counted.
func (h *histogram) point(since, now time.Time) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{Attributes: h.labels, StartTime: since, Time: now, BucketCounts: make([]uint64, len(h.bounds)+1)}
	for _, b := range h.bounds {
		p.Bounds = append(p.Bounds, b.Seconds())
	}
	for i := range p.BucketCounts {
		p.BucketCounts[i] = uint64(h.counts[i].Load())
		p.Count += p.BucketCounts[i]
	}
	p.Sum = time.Duration(h.sum.Load()).Seconds()
	return p
}

// vector is the histograms of one name.
type vector struct {
	name, help string
	labelled[histogram]
}

// kept says that somebody reads durations. While nobody does, none is kept.
var kept atomic.Bool

func (v *vector) observe(took time.Duration, first, second string) {
	v.get(first, second).observe(took, 1)
}

var vectors []*vector

func durations(name, help string, bounds []time.Duration, labels ...string) *vector {
	v := &vector{name: "lockproxy." + name, help: help}
	copy(v.labels[:], labels)
	v.make = func(labels attribute.Set) *histogram { return &histogram{bounds: bounds, labels: labels} }
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
