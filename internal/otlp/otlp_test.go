package otlp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	metrics1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/lockproxy/lockproxy/internal/retry"
)

func TestMain(m *testing.M) {
	for _, kv := range os.Environ() { // the tests decide what the environment says
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

func TestSettings(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string // without the prefix
		want string            // in the URL, or in the error, with "!" before it
	}{
		"nothing":             {nil, "http://localhost:4318/v1/traces"},
		"a base":              {map[string]string{"ENDPOINT": "https://c:1/base"}, "https://c:1/base/v1/traces"},
		"a base with a slash": {map[string]string{"ENDPOINT": " http://c:1/ "}, "http://c:1/v1/traces"},
		"the signal's own":    {map[string]string{"ENDPOINT": "https://c:1/base", "TRACES_ENDPOINT": "http://d/here"}, "http://d/here"},
		"another signal's":    {map[string]string{"METRICS_ENDPOINT": "http://d", "METRICS_PROTOCOL": "grpc"}, "http://localhost:4318/v1/traces"},
		"the protocol":        {map[string]string{"PROTOCOL": "grpc", "TRACES_PROTOCOL": "http/protobuf"}, "http://localhost:4318/v1/traces"},
		"cumulative":          {map[string]string{"TRACES_TEMPORALITY_PREFERENCE": "Cumulative"}, "http://localhost:4318/v1/traces"},
		"gRPC":                {map[string]string{"PROTOCOL": "grpc"}, `!OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" is not there: lockproxy sends by http/protobuf alone`},
		"JSON":                {map[string]string{"TRACES_PROTOCOL": "http/json"}, `!OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "http/json" is not there`},
		"no URL":              {map[string]string{"ENDPOINT": "collector:4317"}, "!OTEL_EXPORTER_OTLP_ENDPOINT: it is not http://host:port"},
		"a socket":            {map[string]string{"ENDPOINT": "unix:///s"}, "!OTEL_EXPORTER_OTLP_ENDPOINT: it is not http://host:port"},
		"no header":           {map[string]string{"HEADERS": "secret"}, "!OTEL_EXPORTER_OTLP_HEADERS: it is not name=value"},
		"a header's bad text": {map[string]string{"HEADERS": "a=%zz"}, "!OTEL_EXPORTER_OTLP_HEADERS: it is not name=value"},
		"a time with a unit":  {map[string]string{"TIMEOUT": "10s"}, `!OTEL_EXPORTER_OTLP_TIMEOUT: "10s" is not a number of milliseconds`},
		"delta":               {map[string]string{"TRACES_TEMPORALITY_PREFERENCE": "delta"}, "!figures are cumulative"},
		"a file":              {map[string]string{"CERTIFICATE": "ca.pem"}, "!OTEL_EXPORTER_OTLP_CERTIFICATE: \"ca.pem\" is not there: lockproxy trusts the system's authorities"},
		"all faults":          {map[string]string{"TIMEOUT": "x", "PROTOCOL": "y"}, "!TIMEOUT"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(prefix+k, v)
			}
			to, err := traces.target()
			want, bad := strings.CutPrefix(c.want, "!")
			switch {
			case bad && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("error %v, want %q", err, want)
			case bad && strings.Contains(err.Error(), "secret"):
				t.Errorf("the error has a header's text: %v", err)
			case !bad && (err != nil || to.url != want):
				t.Errorf("%q, %v, want %q", to.url, err, want)
			}
		})
	}
}

// collector is an OTLP receiver, whose answers come in turn; the last is that to all further requests.
type collector struct {
	answers []int
	posts   []*http.Request
	bodies  [][]byte
	says    []byte
	again   func() // called at the second request, if there is such a function
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	status := c.answers[min(len(c.posts), len(c.answers)-1)]
	c.posts, c.bodies = append(c.posts, r), append(c.bodies, text)
	if len(c.posts) == 2 && c.again != nil {
		c.again()
	}
	w.WriteHeader(status)
	_, _ = w.Write(c.says)
}

// exporter is a client that sends to c, with short pauses.
func (c *collector) exporter(t *testing.T, s signal) *client {
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	out, err := newClient(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.close)
	out.pauses = retry.Backoff{First: time.Millisecond, Most: time.Millisecond}
	return out
}

func TestTriesAgain(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=y")
	c := &collector{answers: []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusOK}}
	out := &spans{c.exporter(t, traces)}
	if err := out.UploadTraces(context.Background(), []*trace.ResourceSpans{{SchemaUrl: "it"}}); err != nil {
		t.Fatal(err)
	}
	if len(c.posts) != 3 {
		t.Fatalf("%d posts", len(c.posts))
	}
	for i, post := range c.posts {
		var got trace.TracesData
		if err := proto.Unmarshal(c.bodies[i], &got); err != nil || got.ResourceSpans[0].SchemaUrl != "it" {
			t.Errorf("post %d: %v, %v", i, &got, err)
		}
		if h := post.Header; h.Get("api-key") != "a b" || h.Get("X") != "y" || h.Get("Content-Type") != "application/x-protobuf" || post.URL.Path != "/v1/traces" {
			t.Errorf("post %d: %s %v", i, post.URL, h)
		}
	}
}

func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		says   []byte
		want   string // in the error; "": none
	}{
		"all is taken":       {http.StatusOK, nil, ""},
		"a page of a proxy":  {http.StatusOK, []byte("<html>"), ""},
		"no such path":       {http.StatusNotFound, []byte("404"), `404 Not Found: "404"`},
		"a redirect to none": {http.StatusMovedPermanently, nil, "301"},
	} {
		t.Run(name, func(t *testing.T) {
			from := &collector{answers: []int{c.status}, says: c.says}
			err := from.exporter(t, traces).send(context.Background(), &trace.TracesData{})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || len(from.posts) != 1 {
				t.Errorf("error %v after %d posts, want %q", err, len(from.posts), c.want)
			}
		})
	}
	t.Run("until the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c := &collector{answers: []int{http.StatusBadGateway}, again: cancel}
		if err := c.exporter(t, traces).send(ctx, &trace.TracesData{}); err == nil || len(c.posts) < 2 {
			t.Errorf("error %v after %d posts", err, len(c.posts))
		}
	})
}

func TestSpans(t *testing.T) {
	c := &collector{answers: []int{http.StatusOK}}
	c.exporter(t, traces)
	out, err := Traces(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := out.ExportSpans(context.Background(), []sdktrace.ReadOnlySpan{tracetest.SpanStub{Name: "LOCK"}.Snapshot()}); err != nil {
		t.Fatal(err)
	}
	if err := out.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	var got trace.TracesData
	if err := proto.Unmarshal(c.bodies[0], &got); err != nil || got.ResourceSpans[0].ScopeSpans[0].Spans[0].Name != "LOCK" {
		t.Errorf("%v, %v", &got, err)
	}
}

func TestFigures(t *testing.T) {
	c := &collector{answers: []int{http.StatusOK}}
	c.exporter(t, metrics)
	out, err := Metrics()
	if err != nil {
		t.Fatal(err)
	}
	began, now := time.Unix(1, 0), time.Unix(2, 0)
	of := func(all ...metricdata.Metrics) *metricdata.ResourceMetrics {
		return &metricdata.ResourceMetrics{
			Resource:     resource.NewSchemaless(attribute.String("service.name", "mine"), attribute.Int("process.pid", 3)),
			ScopeMetrics: []metricdata.ScopeMetrics{{Metrics: all}},
		}
	}
	err = out.Export(context.Background(), of(
		metricdata.Metrics{Name: "whole", Unit: "s", Data: metricdata.Gauge[int64]{DataPoints: []metricdata.DataPoint[int64]{{Value: -4, Time: now}}}},
		metricdata.Metrics{Name: "part", Data: metricdata.Gauge[float64]{DataPoints: []metricdata.DataPoint[float64]{{Value: 0.5}}}},
		metricdata.Metrics{Name: "sum", Data: metricdata.Sum[int64]{IsMonotonic: true, DataPoints: []metricdata.DataPoint[int64]{
			{Value: 5, StartTime: began, Time: now, Attributes: attribute.NewSet(attribute.String("kind", "fair"))},
		}}},
		metricdata.Metrics{Name: "times", Data: metricdata.Histogram[float64]{DataPoints: []metricdata.HistogramDataPoint[float64]{
			{Count: 3, Sum: 1.5, Bounds: []float64{1}, BucketCounts: []uint64{2, 1}, StartTime: began, Time: now},
		}}},
	))
	if err != nil {
		t.Fatal(err)
	}
	var got metrics1.MetricsData
	if err := proto.Unmarshal(c.bodies[0], &got); err != nil {
		t.Fatal(err)
	}
	if a := got.ResourceMetrics[0].Resource.Attributes; a[0].Value.GetIntValue() != 3 || a[1].Value.GetStringValue() != "mine" {
		t.Errorf("of %v", a)
	}
	all := got.ResourceMetrics[0].ScopeMetrics[0].Metrics
	if p := all[0].GetGauge().DataPoints[0]; p.GetAsInt() != -4 || p.TimeUnixNano != 2e9 || p.StartTimeUnixNano != 0 || all[0].Unit != "s" {
		t.Errorf("a whole number: %v", all[0])
	}
	if p := all[1].GetGauge().DataPoints[0]; p.GetAsDouble() != 0.5 {
		t.Errorf("a part: %v", p)
	}
	if s := all[2].GetSum(); s.AggregationTemporality != cumulative || !s.IsMonotonic || s.DataPoints[0].GetAsInt() != 5 ||
		s.DataPoints[0].StartTimeUnixNano != 1e9 || s.DataPoints[0].Attributes[0].Value.GetStringValue() != "fair" {
		t.Errorf("a sum: %v", s)
	}
	if h := all[3].GetHistogram(); h.AggregationTemporality != cumulative || h.DataPoints[0].GetSum() != 1.5 || h.DataPoints[0].Count != 3 ||
		h.DataPoints[0].BucketCounts[1] != 1 || h.DataPoints[0].ExplicitBounds[0] != 1 {
		t.Errorf("a histogram: %v", h)
	}
	if err := out.Export(context.Background(), of(metricdata.Metrics{Name: "odd", Data: metricdata.Summary{}})); err == nil {
		t.Error("a kind that is not sent has no error")
	}
	if err := out.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
