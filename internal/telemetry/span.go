package telemetry

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// placeholder is the global tracer provider while nobody has set one.
var placeholder = otel.GetTracerProvider()

// namedTracer is the tracer that a provider gave for our scope; asking each
// time would take the provider's mutex.
type namedTracer struct {
	provider trace.TracerProvider
	tracer   trace.Tracer // nil: nobody wants spans
	kept     float64      // of the traces that begin here, from 0 to 1
}

var lastTracer atomic.Pointer[namedTracer]

// Span begins a span with OpenTelemetry's global provider, below the span in
// ctx if there is one. The caller must End it. Attributes are looked at only
// when the span is recorded, so a sampler does not see them. Without an exporter
// there is no span, and ctx stays as it is: each would cost allocations.
func Span(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	t := tracer()
	if t.tracer == nil {
		return ctx, noop.Span{}
	}
	switch above := trace.SpanContextFromContext(ctx); {
	case !above.IsValid():
		if t.kept < 1 && rand.Float64() >= t.kept {
			return leftOut(ctx), noop.Span{}
		}
	case !above.IsSampled() && !above.IsRemote():
		// The sampler has left out a span of this process, and would leave out those below, since they are of the same trace.
		return ctx, noop.Span{}
	}
	ctx, span := t.tracer.Start(ctx, name)
	if span.IsRecording() {
		// A copy, so that the caller's slice can stay on its stack.
		span.SetAttributes(slices.Clone(attrs)...)
	}
	return ctx, span
}

func tracer() *namedTracer {
	provider := otel.GetTracerProvider()
	if last := lastTracer.Load(); last != nil && last.provider == provider {
		return last
	}
	named := &namedTracer{provider: provider, kept: 1}
	if sampled, ok := provider.(*sampledProvider); ok {
		named.kept = sampled.kept
	}
	if _, none := provider.(noop.TracerProvider); !none && provider != placeholder {
		named.tracer = provider.Tracer(scope)
	}
	lastTracer.Store(named)
	return named
}

// Parent is a span of another process that spans here can be below; nil is none.
type Parent struct{ span trace.SpanContext }

// ReadParent reads a traceparent as W3C's Trace Context has it; "" is no parent.
// ok says that it is well formed.
func ReadParent(traceparent string) (p *Parent, ok bool) {
	if traceparent == "" {
		return nil, true
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	span := trace.SpanContextFromContext(ctx)
	return &Parent{span}, span.IsValid()
}

// Over has the spans that begin in the ctx it returns be below p. Without an
// exporter ctx stays as it is: another would cost allocations.
func (p *Parent) Over(ctx context.Context) context.Context {
	if p == nil || tracer().tracer == nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, p.span)
}
