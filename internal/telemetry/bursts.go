package telemetry

import (
	"context"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	burstMost = 64          // spans that are kept for those behind them
	burstTime = time.Second // for which one is kept at most
)

// bursts hands ended spans on in bursts. OpenTelemetry's batcher wakes its goroutine for each one, which takes the
// processors longer than to make the span.
type bursts struct {
	sdktrace.SpanProcessor // the batcher

	mu   sync.Mutex
	kept []sdktrace.ReadOnlySpan
	late *time.Timer // runs while some are kept
}

// OnEnd implements sdktrace.SpanProcessor.
func (b *bursts) OnEnd(s sdktrace.ReadOnlySpan) {
	b.mu.Lock()
	b.kept = append(b.kept, s)
	n := len(b.kept)
	if n == 1 {
		b.late = time.AfterFunc(burstTime, b.handOn)
	}
	b.mu.Unlock()
	if n >= burstMost {
		b.handOn()
	}
}

// handOn hands on what is kept.
func (b *bursts) handOn() {
	b.mu.Lock()
	kept := b.kept
	b.kept = nil
	if b.late != nil {
		b.late.Stop()
	}
	b.mu.Unlock()
	for _, s := range kept {
		b.SpanProcessor.OnEnd(s)
	}
}

// ForceFlush implements sdktrace.SpanProcessor.
func (b *bursts) ForceFlush(ctx context.Context) error {
	b.handOn()
	return b.SpanProcessor.ForceFlush(ctx)
}

// Shutdown implements sdktrace.SpanProcessor.
func (b *bursts) Shutdown(ctx context.Context) error {
	b.handOn()
	return b.SpanProcessor.Shutdown(ctx)
}
