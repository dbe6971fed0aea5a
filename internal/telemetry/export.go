package telemetry

import (
	"context"
	"fmt"
	"os"
	"strings"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockproxy/lockproxy/internal/otlp"
)

// exported reports whether the environment asks for a signal ("TRACES" or "METRICS") to be exported. OpenTelemetry's
// own default, OTLP to localhost, is not taken: nothing leaves the process unless someone said so.
func exported(signal string) (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch name := "OTEL_" + signal + "_EXPORTER"; os.Getenv(name) {
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")+os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != "", nil
	case "otlp":
		return true, nil
	case "none":
		return false, nil
	default:
		return false, fmt.Errorf("%s: %q is not one of otlp, none (for Prometheus there is --metrics-listen)", name, os.Getenv(name))
	}
}

// spanExporter returns where spans go, nil for nowhere.
func spanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	if on, err := exported("TRACES"); !on {
		return nil, err
	}
	return otlp.Traces(ctx)
}

// metricReader returns what carries figures away, nil for nothing.
func metricReader() (sdkmetric.Reader, error) {
	if on, err := exported("METRICS"); !on {
		return nil, err
	}
	e, err := otlp.Metrics()
	if err != nil {
		return nil, err
	}
	return sdkmetric.NewPeriodicReader(e, sdkmetric.WithProducer(producer{})), nil
}
