package telemetry

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

func BenchmarkCounterAdd(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Commands.Add(1)
	}
}

func BenchmarkCounterAddParallel(b *testing.B) {
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			Commands.Add(1)
		}
	})
}

func BenchmarkSpanUnrecorded(b *testing.B) {
	start(b, Options{})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, span := Span(ctx, "LOCK", attribute.String("kind", "plain"))
		span.End()
	}
}

func BenchmarkVerbDoneBeforeStart(b *testing.B) {
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		VerbDone(ctx, "LOCK", "ok", time.Millisecond)
	}
}

func BenchmarkVerbDone(b *testing.B) {
	start(b, Options{MetricsListen: "127.0.0.1:0"})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		VerbDone(ctx, "LOCK", "ok", time.Millisecond)
	}
}

func BenchmarkLockGranted(b *testing.B) {
	start(b, Options{MetricsListen: "127.0.0.1:0"})
	b.ReportAllocs()
	for b.Loop() {
		LockGranted("plain", time.Millisecond)
	}
}

// BenchmarkRun is what telemetry does for a command of its own, but for the reading of clocks.
func BenchmarkRun(b *testing.B) {
	start(b, Options{MetricsListen: "127.0.0.1:0"})
	b.ReportAllocs()
	for b.Loop() {
		run := Run{String: 1}
		run.Upstream(100 * time.Microsecond)
		run.Proxy(20 * time.Microsecond)
	}
}

// BenchmarkVerbDoneEverywhere is VerbDone on all processors.
func BenchmarkVerbDoneEverywhere(b *testing.B) {
	start(b, Options{MetricsListen: "127.0.0.1:0"})
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			VerbDone(ctx, "LOCK", "ok", time.Millisecond)
		}
	})
}

// BenchmarkRunEverywhere is Run on all processors.
func BenchmarkRunEverywhere(b *testing.B) {
	start(b, Options{MetricsListen: "127.0.0.1:0"})
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			run := Run{String: 1}
			run.Upstream(100 * time.Microsecond)
			run.Proxy(20 * time.Microsecond)
		}
	})
}
