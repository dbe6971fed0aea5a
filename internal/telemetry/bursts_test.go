package telemetry

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestBursts: spans are handed on in their order, as soon as there are many, after a second at the latest, and before a flush and the end.
func TestBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(&bursts{SpanProcessor: sdktrace.NewSimpleSpanProcessor(recorded)}))
		made := 0
		spans := func(n int) {
			for range n {
				_, s := provider.Tracer("t").Start(context.Background(), fmt.Sprint(made))
				s.End()
				made++
			}
		}
		handedOn := func(when string, n int) {
			t.Helper()
			synctest.Wait()
			got := recorded.GetSpans()
			if len(got) != n {
				t.Fatalf("%s %d of %d spans are handed on, not %d", when, len(got), made, n)
			}
			for i, s := range got {
				if s.Name != fmt.Sprint(i) {
					t.Fatalf("%s span %d is %s", when, i, s.Name)
				}
			}
		}
		spans(1)
		handedOn("at once", 0)
		time.Sleep(burstTime)
		handedOn("after a second", 1)
		spans(burstMost + 1)
		handedOn("when there are many", 1+burstMost)
		time.Sleep(burstTime)
		handedOn("a second after that", 2+burstMost)
		spans(2)
		if err := provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
		handedOn("after a flush", made)
		spans(2)
		// What is handed on before the end is seen by a processor that keeps it: the exporter forgets all at its own end.
		kept := &endings{}
		last := &bursts{SpanProcessor: kept}
		for _, s := range recorded.GetSpans().Snapshots() {
			last.OnEnd(s)
		}
		if err := last.Shutdown(t.Context()); err != nil || kept.before != len(recorded.GetSpans()) {
			t.Fatalf("%v; %d spans before the end", err, kept.before)
		}
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

// endings counts the spans that come before Shutdown.
type endings struct {
	sdktrace.SpanProcessor

	n, before int
}

func (e *endings) OnEnd(sdktrace.ReadOnlySpan) { e.n++ }

func (e *endings) Shutdown(context.Context) error { e.before = e.n; return nil }
