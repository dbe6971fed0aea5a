package telemetry

import (
	"context"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// namedTracer is the tracer that a provider gave for our scope; asking each
// time would take the provider's mutex.
type namedTracer struct {
	provider trace.TracerProvider
	tracer   trace.Tracer
}

var lastTracer atomic.Pointer[namedTracer]

// Span begins a span with OpenTelemetry's global provider, below the span in
// ctx if there is one. The caller must End it. Attributes are looked at only
// when the span is recorded, so a sampler does not see them, and without an
// exporter they cost nothing but their making.
func Span(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	ctx, span := tracer().Start(ctx, name)
	if span.IsRecording() {
		// A copy, so that the caller's slice can stay on its stack.
		span.SetAttributes(slices.Clone(attrs)...)
	}
	return ctx, span
}

func tracer() trace.Tracer {
	provider := otel.GetTracerProvider()
	if last := lastTracer.Load(); last != nil && last.provider == provider {
		return last.tracer
	}
	named := &namedTracer{provider: provider, tracer: provider.Tracer(scope)}
	lastTracer.Store(named)
	return named.tracer
}
