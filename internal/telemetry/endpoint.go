package telemetry

import (
	"context"
	"errors"
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
)

// endpoint serves GET /metrics in Prometheus' text format, and the handlers it is given.
type endpoint struct {
	listener net.Listener
	server   *http.Server
	logger   *slog.Logger
	served   chan struct{} // closed when serve has returned
}

// listen opens the endpoint and returns the reader through which it collects.
func listen(ctx context.Context, o Options, more sdkmetric.Producer) (*endpoint, sdkmetric.Reader, error) {
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
	listener, err := o.Sockets.Listen(ctx, "tcp", o.MetricsListen)
	if err != nil {
		return nil, nil, err
	}
	e := &endpoint{
		listener: listener,
		server: &http.Server{
			Handler:           routes(registry, o.Handlers, o.Logger),
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      time.Minute,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		},
		logger: o.Logger,
		served: make(chan struct{}),
	}
	go e.serve()
	return e, reader, nil
}

func routes(registry *prometheus.Registry, handlers map[string]http.Handler, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		Registry: registry,
	}))
	for pattern, h := range handlers {
		mux.Handle(pattern, h)
	}
	return mux
}

func (e *endpoint) serve() {
	defer close(e.served)
	if err := e.server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
		e.logger.Error("metrics endpoint stopped", "addr", e.listener.Addr().String(), "error", err)
	}
}

// shutdown lets scrapes under way finish within ctx, then cuts them.
func (e *endpoint) shutdown(ctx context.Context) error {
	err := e.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, e.server.Close())
	}
	<-e.served
	return err
}
