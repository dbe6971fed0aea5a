package telemetry

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

func TestSpans(t *testing.T) {
	recorded := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(recorded))
	otel.SetTracerProvider(provider)
	defer func() {
		otel.SetTracerProvider(noop.NewTracerProvider())
		provider.Shutdown(context.Background())
	}()

	ctx, outer := Span(context.Background(), "LOCK", attribute.String("kind", "plain"))
	_, inner := Span(ctx, "script")
	inner.End()
	outer.End()

	spans := recorded.GetSpans()
	if len(spans) != 2 || spans[0].Name != "script" || spans[1].Name != "LOCK" {
		t.Fatalf("spans: %+v", spans)
	}
	if spans[0].Parent.SpanID() != spans[1].SpanContext.SpanID() {
		t.Error("the inner span is not below the outer one")
	}
	if want := []attribute.KeyValue{attribute.String("kind", "plain")}; len(spans[1].Attributes) != 1 || spans[1].Attributes[0] != want[0] {
		t.Errorf("attributes %v, want %v", spans[1].Attributes, want)
	}
	if name := spans[0].InstrumentationScope.Name; name != scope {
		t.Errorf("scope %q", name)
	}
}

// A span is below the parent that a client names only if somebody wants spans; otherwise the parent costs nothing.
func TestParent(t *testing.T) {
	const well = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, malformed := range []string{" ", "00", well + "-x", well[:54], "ff" + well[2:], strings.ToUpper(well), "00-" + strings.Repeat("0", 32) + well[35:]} {
		if _, ok := ReadParent(malformed); ok {
			t.Errorf("%q is taken", malformed)
		}
	}
	none, ok := ReadParent("")
	if none != nil || !ok {
		t.Error("the empty one is a parent, or malformed")
	}
	p, ok := ReadParent(well)
	if !ok {
		t.Fatal("the well-formed one is refused")
	}
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		about, _ := SpanAbout(ctx, "LOCK", "l")
		if p.Over(ctx) != ctx || none.Over(ctx) != ctx || about != ctx {
			t.Error("there is a parent and nobody wants spans")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	recorded := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(recorded))
	otel.SetTracerProvider(provider)
	defer func() {
		otel.SetTracerProvider(noop.NewTracerProvider())
		provider.Shutdown(context.Background())
	}()
	for _, parent := range []*Parent{p, none} {
		_, span := Span(parent.Over(ctx), "LOCK")
		span.End()
	}
	spans := recorded.GetSpans()
	if of := spans[0].Parent; of.TraceID().String() != well[3:35] || of.SpanID().String() != well[36:52] || !of.IsRemote() || spans[1].Parent.IsValid() {
		t.Errorf("parents %v, %v", of, spans[1].Parent)
	}
}

// dropping is a sampler that wants no spans, and counts how often it is asked.
type dropping struct{ asked int }

func (d *dropping) ShouldSample(sdktrace.SamplingParameters) sdktrace.SamplingResult {
	d.asked++
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

func (d *dropping) Description() string { return "drops all" }

// Of a trace that the sampler leaves out it is asked once; one that a client has left out is the sampler's to decide about.
func TestSpansLeftOut(t *testing.T) {
	sampler := &dropping{}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler))
	otel.SetTracerProvider(provider)
	defer func() {
		otel.SetTracerProvider(noop.NewTracerProvider())
		provider.Shutdown(context.Background())
	}()
	ctx, outer := Span(context.Background(), "LOCK")
	defer outer.End()
	if allocs := testing.AllocsPerRun(10, func() {
		_, inner := Span(ctx, "script")
		inner.End()
	}); allocs > 0 || sampler.asked != 1 {
		t.Errorf("%v allocations, and the sampler was asked %d times", allocs, sampler.asked)
	}
	p, _ := ReadParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
	_, below := Span(p.Over(context.Background()), "LOCK")
	below.End()
	if sampler.asked != 2 {
		t.Errorf("the sampler was asked %d times", sampler.asked)
	}
}

// Spans name their locks, of which a part that is long or many is left out.
func TestSpansNameLocks(t *testing.T) {
	recorded := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(recorded))
	otel.SetTracerProvider(provider)
	defer func() {
		otel.SetTracerProvider(noop.NewTracerProvider())
		provider.Shutdown(context.Background())
	}()
	said := func(ctx context.Context, span trace.Span) []attribute.KeyValue {
		recorded.Reset()
		_, below := Span(ctx, "acquire")
		below.End()
		span.End()
		spans := recorded.GetSpans()
		if fmt.Sprint(spans[0].Attributes) != fmt.Sprint(spans[1].Attributes) {
			t.Errorf("the span below says %v", spans[0].Attributes)
		}
		return spans[1].Attributes
	}
	ctx := context.Background()
	got := said(SpanAbout(ctx, "LOCK", strings.Repeat("l", 1000)))
	if len(got) != 1 || got[0].Value.AsString() != strings.Repeat("l", longestName) {
		t.Errorf("one lock: %v", got)
	}
	got = said(SpanAbout(ctx, "MULTILOCK", make([]string, 1000)))
	if len(got) != 1 || len(got[0].Value.AsStringSlice()) != mostNames {
		t.Errorf("many locks: %v", got)
	}
}
