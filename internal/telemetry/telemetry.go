// Package telemetry counts, times and traces what lockproxy does, with
// OpenTelemetry.
//
// Every package may count, in plain atomics that a collection reads ([Counter], [Gauge], [Counters], histograms). What
// they are is declared in figures.go and instruments.go. Counting is allowed before [Start] and after
// [Telemetry.Shutdown]; durations are then not kept.
//
// Figures leave the process in two ways, both off by default: a Prometheus
// endpoint, and the exporters that the standard OTEL_ environment variables
// ask for. No figure is ever labelled with a lock name, an owner or a client's
// address: there is no bound on how many of those exist. Spans have locks' names.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// scope is the instrumentation scope of every instrument and span.
const scope = "github.com/lockproxy/lockproxy"

// Options say what [Start] begins.
type Options struct {
	// ServiceVersion is reported as service.version.
	ServiceVersion string
	// MetricsListen is the TCP address of the Prometheus endpoint,
	// host:port, where port 0 means any free one. "" means no endpoint.
	MetricsListen string
	// Sockets opens that address.
	Sockets net.ListenConfig
	// Later leaves it to [Telemetry.Listen] to open that address.
	Later bool
	// Handlers are served there, too, by their patterns.
	Handlers map[string]http.Handler
	// Logger gets the exporters' errors. nil means slog.Default().
	Logger *slog.Logger
}

// Telemetry is what [Start] began. [Telemetry.Shutdown] must end it.
type Telemetry struct {
	endpoint *endpoint // nil: no Prometheus endpoint
	metrics  *sdkmetric.MeterProvider
	traces   *sdktrace.TracerProvider // nil: no spans leave
}

// Start begins to publish figures and spans: on the Prometheus endpoint of
// o.MetricsListen, and to the exporters that the OTEL_ environment variables
// name. With neither, it opens no connection and starts no goroutine. Errors
// are an unusable listen address and unknown or contradictory OTEL_ values.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	t := &Telemetry{}
	if err := t.start(ctx, o); err != nil {
		return nil, fmt.Errorf("telemetry: %w", errors.Join(err, t.Shutdown(ctx)))
	}
	return t, nil
}

func (t *Telemetry) start(ctx context.Context, o Options) error {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Logger.Warn("telemetry export failed", "error", err)
	}))
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithService(),
		resource.WithAttributes(
			attribute.String("service.name", "lockproxy"),
			attribute.String("service.version", o.ServiceVersion),
		),
		resource.WithFromEnv(), // the operator's own names win
	)
	if err != nil {
		return fmt.Errorf("describing this process: %w", err)
	}
	if err := t.startTraces(ctx, res); err != nil {
		return err
	}
	return t.startMetrics(ctx, res, o)
}

// startTraces sets the global tracer provider, which [Span] uses.
func (t *Telemetry) startTraces(ctx context.Context, res *resource.Resource) error {
	exporter, err := spanExporter(ctx)
	if err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	if exporter == nil {
		return nil
	}
	t.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(exporter))
	otel.SetTracerProvider(t.traces)
	return nil
}

func (t *Telemetry) startMetrics(ctx context.Context, res *resource.Resource, o Options) error {
	var ways []sdkmetric.Option
	if o.MetricsListen != "" {
		e, reader, err := newEndpoint(o)
		if err != nil {
			return fmt.Errorf("metrics endpoint: %w", err)
		}
		t.endpoint = e
		if !o.Later {
			if err := e.listen(ctx); err != nil {
				return err
			}
		}
		ways = append(ways, sdkmetric.WithReader(reader))
	}
	reader, err := metricReader()
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if reader != nil {
		ways = append(ways, sdkmetric.WithReader(reader))
	}
	if len(ways) > 0 {
		t.metrics = sdkmetric.NewMeterProvider(append(ways, sdkmetric.WithResource(res))...)
		kept.Store(true)
	}
	return nil
}

// Listen opens the Prometheus endpoint, if there is one, after a Start with
// Options.Later.
func (t *Telemetry) Listen(ctx context.Context) error {
	if t.endpoint == nil {
		return nil
	}
	return t.endpoint.listen(ctx)
}

// Unlisten leaves the Prometheus endpoint's address to another process, also to
// those who are connected here: they are disconnected, after their answer if
// one is under way.
func (t *Telemetry) Unlisten() {
	if t.endpoint != nil {
		t.endpoint.Unlisten()
	}
}

// Shutdown sends what was gathered and not yet sent, and ends everything Start
// began; what ctx leaves no time for is dropped. Counting stays allowed.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	if t.traces != nil {
		otel.SetTracerProvider(noop.NewTracerProvider())
		errs = append(errs, t.traces.Shutdown(ctx))
	}
	if t.endpoint != nil {
		errs = append(errs, t.endpoint.Shutdown(ctx))
	}
	if t.metrics != nil {
		kept.Store(false)
		errs = append(errs, t.metrics.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
