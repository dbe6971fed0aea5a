package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"golang.org/x/net/netutil"
)

// mostConnections is how many there may be at once: who comes later waits.
const mostConnections = 64

// mostScrapes is how many are worked at at once; one more is refused.
const mostScrapes = 8

// endpoint serves GET /metrics in Prometheus' text format, and the handlers it is given.
type endpoint struct {
	sockets  net.ListenConfig
	listener net.Listener // nil before listen
	server   *http.Server
	logger   *slog.Logger
	serving  sync.WaitGroup
}

// newEndpoint returns an endpoint that does not listen yet, and the reader through which it collects.
func newEndpoint(o Options, more sdkmetric.Producer) (*endpoint, sdkmetric.Reader, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	reader, err := exporter.New(
		exporter.WithRegisterer(registry),
		exporter.WithProducer(more),
		exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
		exporter.WithoutScopeInfo(), // one scope: its labels would only repeat
	)
	if err != nil {
		return nil, nil, err
	}
	return &endpoint{
		sockets: o.Sockets,
		server: &http.Server{
			Addr:              o.MetricsListen,
			Handler:           routes(registry, o.Handlers, o.Logger),
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      time.Minute,
			IdleTimeout:       30 * time.Second,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		},
		logger: o.Logger,
	}, reader, nil
}

// listen opens the endpoint.
func (e *endpoint) listen(ctx context.Context) (err error) {
	if e.listener, err = e.sockets.Listen(ctx, "tcp", e.server.Addr); err != nil {
		return fmt.Errorf("metrics endpoint: %w", err)
	}
	e.listener = netutil.LimitListener(e.listener, mostConnections)
	e.serving.Go(e.serve)
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

func (e *endpoint) serve() {
	if err := e.server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		e.logger.Error("metrics endpoint stopped", "addr", e.listener.Addr().String(), "error", err)
	}
}

// shutdown lets scrapes under way finish within ctx, then cuts them.
func (e *endpoint) shutdown(ctx context.Context) error {
	err := e.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, e.server.Close())
	}
	e.serving.Wait()
	return err
}
