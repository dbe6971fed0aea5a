package telemetry

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
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
}

var lastTracer atomic.Pointer[namedTracer]

// Span begins a span with OpenTelemetry's global provider, below the span in
// ctx if there is one. The caller must End it. Attributes are looked at only
// when the span is recorded, so a sampler does not see them. Without an exporter
// there is no span, and ctx stays as it is: each would cost allocations.
func Span(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	t := tracerIn(ctx)
	if t == nil {
		return ctx, noop.Span{}
	}
	return begin(ctx, t, name, attrs)
}

// SpanAbout is Span of a verb: the span, and those that begin below it, say which lock they are about, or which locks.
func SpanAbout[T string | []string](ctx context.Context, name string, locks T) (context.Context, trace.Span) {
	t := tracerIn(ctx)
	if t == nil {
		return ctx, noop.Span{}
	}
	return begin(context.WithValue(ctx, aboutKey{}, locks), t, name, nil)
}

// tracerIn returns the tracer of a span that is to begin in ctx; nil: there is to be none. The sampler has left out a
// span of this process that is not sampled, and would leave out those below, since they are of the same trace.
func tracerIn(ctx context.Context) trace.Tracer {
	t := tracer().tracer
	if above := trace.SpanContextFromContext(ctx); t != nil && above.IsValid() && !above.IsSampled() && !above.IsRemote() {
		return nil
	}
	return t
}

func begin(ctx context.Context, t trace.Tracer, name string, attrs []attribute.KeyValue) (context.Context, trace.Span) {
	ctx, span := t.Start(ctx, name)
	if span.IsRecording() {
		// A copy, so that the caller's slice can stay on its stack.
		span.SetAttributes(slices.Clone(attrs)...)
		span.SetAttributes(locksOf(ctx)...)
	}
	return ctx, span
}

const (
	longestName = 256 // bytes of a lock's name that a span has
	mostNames   = 32  // of the locks of one verb
)

// aboutKey is where a context has what SpanAbout was told.
type aboutKey struct{}

// locksOf are the attributes for what SpanAbout was told. OTLP is text, and one that is not would cost the whole batch.
func locksOf(ctx context.Context) []attribute.KeyValue {
	text := func(lock string) string { return strings.ToValidUTF8(lock[:min(len(lock), longestName)], "\uFFFD") }
	switch about := ctx.Value(aboutKey{}).(type) {
	case string:
		return []attribute.KeyValue{attribute.String("lockproxy.lock", text(about))}
	case []string:
		var names []string
		for _, lock := range about[:min(len(about), mostNames)] {
			names = append(names, text(lock))
		}
		return []attribute.KeyValue{attribute.StringSlice("lockproxy.locks", names)}
	}
	return nil
}

// ended gives the span in ctx its outcome. What is not an answer that was to be expected is an error.
func ended(ctx context.Context, outcome string) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("lockproxy.outcome", outcome))
	if outcome != "ok" && outcome != "nil" {
		span.SetStatus(codes.Error, outcome)
	}
}

func tracer() *namedTracer {
	provider := otel.GetTracerProvider()
	if last := lastTracer.Load(); last != nil && last.provider == provider {
		return last
	}
	named := &namedTracer{provider: provider}
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
