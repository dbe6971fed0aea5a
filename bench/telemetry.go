package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/program"
)

const (
	telemetryFact  = "telemetry: CPU of lockproxy with it ÷ without, "
	telemetryPairs = 6 // for each round
	telemetryMost  = 1.03
)

var telemetryLoads = []load{getP1, getP16, lockLoad(pair, pairsClients)}

// measureTelemetry compares a lockproxy that publishes all it can, which somebody takes every 15 s, with one that publishes nothing: one
// span of a hundred, as operators set it who have many commands. Both are measured in turn, because the machine's slow and fast minutes then
// fall on both; the median is that of the ratios of neighbours.
func measureTelemetry(ctx context.Context, s settings, b *environment, rep *report) error {
	if err := b.fill(ctx, smallValue); err != nil {
		return err
	}
	var spans, figures atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/traces":
			spans.Add(1)
		case "/v1/metrics":
			figures.Add(1)
		}
		_, _ = io.Copy(io.Discard, r.Body) // an empty answer is OTLP's for "all taken"
	}))
	defer collector.Close()
	metrics, err := program.FreeAddr()
	if err != nil {
		return err
	}
	with, err1 := b.beside(ctx, "telemetry", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
		"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01", "OTEL_METRIC_EXPORT_INTERVAL=15000"}, "--metrics-listen", metrics)
	defer with.stop()
	without, err2 := b.beside(ctx, "no-telemetry", []string{"OTEL_SDK_DISABLED=true"})
	defer without.stop()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go scrape(ctx, "http://"+metrics+"/metrics")
	sizes := map[key]int{}
	for _, l := range telemetryLoads {
		var ratios []float64
		for i := range telemetryPairs * s.rounds {
			progress("telemetry: %v, %d of %d", l, i+1, telemetryPairs*s.rounds)
			order := []*target{with, without}
			if i%2 == 1 {
				order = []*target{without, with}
			}
			cpu := map[*target]float64{}
			for _, t := range order {
				taken, err := t.measureCPU(ctx, s, l, sizes)
				if err != nil {
					return fmt.Errorf("%s: %v: %w", t.name, l, err)
				}
				cpu[t] = taken.ProxyCPU
			}
			ratios = append(ratios, ratio(cpu[with], cpu[without]))
		}
		rep.fact(fact{Name: telemetryFact + l.String(), Value: median(ratios, func(v float64) float64 { return v }), Unit: "×", Most: telemetryMost, Limit: limitCounts})
	}
	if spans.Load() == 0 || figures.Load() == 0 {
		return fmt.Errorf("%d batches of spans and %d of figures came: it was not on", spans.Load(), figures.Load())
	}
	return nil
}

// measureCPU takes one sample of a load of data or locks.
func (t *target) measureCPU(ctx context.Context, s settings, l load, sizes map[key]int) (sample, error) {
	if l.What == pair {
		return contestant{name: t.name, lock: rawLock, warm: 1}.race(ctx, s, t, l, itself())
	}
	return t.measure(ctx, s, l, sizes)
}

// beside starts one more lockproxy before the single Redis, with variables added to its environment.
func (b *environment) beside(ctx context.Context, name string, variables []string, args ...string) (*target, error) {
	addr, err := program.FreeAddr()
	if err != nil {
		return &target{}, err
	}
	words := append(append(variables, b.binary, "--listen", addr, "--upstream", "redis://"+b.single.addrs[0], "--drain-delay", "0"), args...)
	p, err := program.Launch(b.dir, name, "env", words...)
	if err != nil {
		return &target{}, err
	}
	return &target{name: name, addr: addr, proxy: p, redis: b.single}, p.Ready(ctx, addr, tryGet)
}

func (t *target) stop() {
	if t.proxy != nil {
		t.proxy.Stop()
	}
}

// scrape asks for the figures every 15 s, as Prometheus often does, until ctx ends.
func scrape(ctx context.Context, url string) {
	for ctx.Err() == nil {
		if r, err := http.Get(url); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
		pause(ctx, 15*time.Second)
	}
}
