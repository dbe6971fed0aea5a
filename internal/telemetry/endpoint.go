package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockproxy/lockproxy/internal/webserver"
)

const (
	// mostScrapes is how many are worked at at once; one more is refused.
	mostScrapes = 8
	// scrapeTime is for a whole scrape: who does not read keeps others from theirs for no longer.
	scrapeTime = 10 * time.Second
)

// endpoint serves GET /metrics in Prometheus' text format, and the handlers it is given.
type endpoint struct {
	*webserver.Server
	sockets net.ListenConfig
	address string
}

// newEndpoint returns an endpoint that does not listen yet, and the reader through which it collects.
func newEndpoint(o Options) (*endpoint, sdkmetric.Reader, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	reader, err := exporter.New(
		exporter.WithRegisterer(registry),
		exporter.WithProducer(producer{}),
		exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
		exporter.WithoutScopeInfo(), // one scope: its labels would only repeat
	)
	if err != nil {
		return nil, nil, err
	}
	server := webserver.New(webserver.Options{
		Name: "the metrics endpoint", Handler: routes(registry, o.Handlers, o.Logger), WriteTimeout: scrapeTime, MaxHeaderBytes: 16 << 10,
		OneAnswer: true, Log: o.Logger,
	})
	return &endpoint{Server: server, sockets: o.Sockets, address: o.MetricsListen}, reader, nil
}

// listen opens the endpoint.
func (e *endpoint) listen(ctx context.Context) error {
	listener, err := e.sockets.Listen(ctx, "tcp", e.address)
	if err != nil {
		return fmt.Errorf("metrics endpoint: %w", err)
	}
	e.Start(listener, nil)
	return nil
}

func routes(registry *prometheus.Registry, handlers map[string]http.Handler, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		Registry: registry,

		MaxRequestsInFlight: mostScrapes,
	}))
	for pattern, h := range handlers {
		mux.Handle(pattern, h)
	}
	return mux
}
