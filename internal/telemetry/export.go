package telemetry

import (
	"context"
	"os"
	"strings"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// asked reports whether the environment asks for a signal ("TRACES" or
// "METRICS") to be exported. OpenTelemetry's own default, OTLP to localhost, is
// not taken: nothing leaves the process unless someone said so.
func asked(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	return os.Getenv("OTEL_"+signal+"_EXPORTER") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// spanExporter returns where spans go, nil for nowhere.
func spanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	if !asked("TRACES") {
		return nil, nil
	}
	e, err := autoexport.NewSpanExporter(ctx)
	if err != nil || autoexport.IsNoneSpanExporter(e) {
		return nil, err
	}
	return e, nil
}

// metricReader returns what carries figures away, nil for nothing.
func metricReader(ctx context.Context, more sdkmetric.Producer) (sdkmetric.Reader, error) {
	if !asked("METRICS") {
		return nil, nil
	}
	autoexport.WithFallbackMetricProducer(func(context.Context) (sdkmetric.Producer, error) { return more, nil })
	r, err := autoexport.NewMetricReader(ctx)
	if err != nil || autoexport.IsNoneMetricReader(r) {
		return nil, err
	}
	return r, nil
}
