package otlp

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
)

// Metrics returns an exporter of figures. Errors are unusable OTEL_EXPORTER_OTLP_ values.
func Metrics() (sdkmetric.Exporter, error) {
	c, err := newClient(metrics)
	if err != nil {
		return nil, err
	}
	return &figures{c}, nil
}

// figures is an sdkmetric.Exporter.
type figures struct{ *client }

// Temporality implements sdkmetric.Exporter.
func (f *figures) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

// Aggregation implements sdkmetric.Exporter.
func (f *figures) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

// ForceFlush implements sdkmetric.Exporter.
func (f *figures) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdkmetric.Exporter.
func (f *figures) Shutdown(context.Context) error {
	f.close()
	return nil
}

// Export implements sdkmetric.Exporter.
func (f *figures) Export(ctx context.Context, of *metricdata.ResourceMetrics) error {
	out := &metrics1.ResourceMetrics{SchemaUrl: of.Resource.SchemaURL(), Resource: &resource.Resource{Attributes: attributes(of.Resource.Iter())}}
	for _, in := range of.ScopeMetrics {
		scope := &metrics1.ScopeMetrics{SchemaUrl: in.Scope.SchemaURL, Scope: &common.InstrumentationScope{Name: in.Scope.Name, Version: in.Scope.Version}}
		for _, m := range in.Metrics {
			one, err := metric(m)
			if err != nil {
				return err
			}
			scope.Metrics = append(scope.Metrics, one)
		}
		out.ScopeMetrics = append(out.ScopeMetrics, scope)
	}
	return f.send(ctx, &metrics1.MetricsData{ResourceMetrics: []*metrics1.ResourceMetrics{out}})
}

// metric takes the kinds of figures that lockproxy has, of which none has exemplars.
func metric(m metricdata.Metrics) (*metrics1.Metric, error) {
	out := &metrics1.Metric{Name: m.Name, Description: m.Description, Unit: m.Unit}
	switch of := m.Data.(type) {
	case metricdata.Gauge[int64]:
		out.Data = &metrics1.Metric_Gauge{Gauge: &metrics1.Gauge{DataPoints: points(of.DataPoints, whole)}}
	case metricdata.Gauge[float64]:
		out.Data = &metrics1.Metric_Gauge{Gauge: &metrics1.Gauge{DataPoints: points(of.DataPoints, fraction)}}
	case metricdata.Sum[int64]:
		out.Data = &metrics1.Metric_Sum{Sum: &metrics1.Sum{
			AggregationTemporality: cumulative, IsMonotonic: of.IsMonotonic, DataPoints: points(of.DataPoints, whole),
		}}
	case metricdata.Histogram[float64]:
		out.Data = &metrics1.Metric_Histogram{Histogram: &metrics1.Histogram{
			AggregationTemporality: cumulative, DataPoints: histogramPoints(of.DataPoints),
		}}
	default:
		return nil, fmt.Errorf("%s: a figure of the kind %T is not sent", m.Name, of)
	}
	return out, nil
}

const cumulative = metrics1.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE

func whole(p *metrics1.NumberDataPoint, v int64) { p.Value = &metrics1.NumberDataPoint_AsInt{AsInt: v} }

func fraction(p *metrics1.NumberDataPoint, v float64) {
	p.Value = &metrics1.NumberDataPoint_AsDouble{AsDouble: v}
}

func points[N int64 | float64](of []metricdata.DataPoint[N], set func(*metrics1.NumberDataPoint, N)) (all []*metrics1.NumberDataPoint) {
	for _, p := range of {
		out := &metrics1.NumberDataPoint{
			Attributes: attributes(p.Attributes.Iter()), StartTimeUnixNano: nanoseconds(p.StartTime), TimeUnixNano: nanoseconds(p.Time),
		}
		set(out, p.Value)
		all = append(all, out)
	}
	return all
}

func histogramPoints(of []metricdata.HistogramDataPoint[float64]) (all []*metrics1.HistogramDataPoint) {
	for _, p := range of {
		all = append(all, &metrics1.HistogramDataPoint{
			Attributes: attributes(p.Attributes.Iter()), StartTimeUnixNano: nanoseconds(p.StartTime), TimeUnixNano: nanoseconds(p.Time),
			Count: p.Count, Sum: &p.Sum, BucketCounts: p.BucketCounts, ExplicitBounds: p.Bounds,
		})
	}
	return all
}

// nanoseconds are those since 1970; 0 of the zero time.
func nanoseconds(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }

// attributes are text but for whole numbers, of which a resource has some.
func attributes(of attribute.Iterator) (all []*common.KeyValue) {
	for of.Next() {
		kv := of.Attribute()
		out := &common.KeyValue{Key: string(kv.Key), Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: kv.Value.String()}}}
		if kv.Value.Type() == attribute.INT64 {
			out.Value.Value = &common.AnyValue_IntValue{IntValue: kv.Value.AsInt64()}
		}
		all = append(all, out)
	}
	return all
}
