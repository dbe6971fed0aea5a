package otlp

import (
	"context"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Traces returns an exporter of spans. Errors are unusable OTEL_EXPORTER_OTLP_ values.
func Traces(ctx context.Context) (sdktrace.SpanExporter, error) {
	c, err := newClient(traces)
	if err != nil {
		return nil, err
	}
	return otlptrace.New(ctx, &spans{c})
}

// spans is an otlptrace.Client.
type spans struct{ *client }

// Start implements otlptrace.Client.
func (s *spans) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (s *spans) Stop(context.Context) error {
	s.close()
	return nil
}

// UploadTraces implements otlptrace.Client.
func (s *spans) UploadTraces(ctx context.Context, batch []*trace.ResourceSpans) error {
	return s.send(ctx, &trace.TracesData{ResourceSpans: batch})
}
