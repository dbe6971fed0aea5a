package telemetry

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
)

// TestKeptTraces: of the traces that begin here as many are kept as the environment says, each whole; a client's parent decides for what
// is below it.
func TestKeptTraces(t *testing.T) {
	const traces, client = 4000, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
	for _, c := range []struct {
		sampler, kept string
		least, most   int
	}{
		{"parentbased_traceidratio", "0.25", traces / 5, traces * 3 / 10},
		{"parentbased_traceidratio", "0", 0, 0},
		{"parentbased_traceidratio", "1", traces, traces},
		{"parentbased_traceidratio", "none", traces, traces}, // OpenTelemetry says that it is malformed, and keeps all
		{"parentbased_traceidratio", "2", traces, traces},
		{"traceidratio", "0.25", traces / 5, traces * 3 / 10},
		{"parentbased_always_off", "1", 0, 0},
		{"", "", traces, traces},
	} {
		t.Run(c.sampler+" "+c.kept, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", c.sampler)
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", c.kept)
			recorded := tracetest.NewInMemoryExporter()
			provider, spans := tracesProvider(sdktrace.WithSyncer(recorded))
			otel.SetTracerProvider(spans)
			defer func() {
				otel.SetTracerProvider(noop.NewTracerProvider())
				provider.Shutdown(context.Background())
			}()
			pair := func(ctx context.Context) {
				ctx, outer := Span(ctx, "LOCK")
				_, inner := Span(ctx, "script")
				inner.End()
				outer.End()
			}
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			for range traces / 2 {
				pair(context.Background())
				pair(ctx)
			}
			if c.kept == "0" {
				if n := testing.AllocsPerRun(100, func() { pair(context.Background()) }); n != 0 {
					t.Errorf("a trace that is left out costs %v allocations", n)
				}
			}
			got := recorded.GetSpans()
			if n := len(got); n%2 != 0 || n/2 < c.least || n/2 > c.most {
				t.Errorf("%d spans of %d traces", n, traces)
			}
			for i := 0; i+1 < len(got); i += 2 {
				if got[i].Name != "script" || got[i].Parent.SpanID() != got[i+1].SpanContext.SpanID() {
					t.Fatalf("spans %d: %v below %v", i, got[i], got[i+1])
				}
			}
			if c.sampler != "parentbased_traceidratio" {
				return
			}
			for sampled, want := range map[string]int{"0": 0, "1": 2} {
				recorded.Reset()
				parent, ok := ReadParent(client + sampled)
				if !ok {
					t.Fatal("the parent is refused")
				}
				if pair(parent.Over(context.Background())); len(recorded.GetSpans()) != want {
					t.Errorf("below a parent with flag %s there are %d spans, want %d", sampled, len(recorded.GetSpans()), want)
				}
			}
		})
	}
}
