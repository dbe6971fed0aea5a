package telemetry

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/goleak"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestMain(m *testing.M) {
	// The tests decide what the environment asks for.
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			os.Unsetenv(name)
		}
	}
	testredis.VerifyTestMain(m)
}

func start(t testing.TB, o Options) *Telemetry {
	t.Helper()
	tel, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := tel.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return tel
}

// get fetches one page of the endpoint without leaving a connection behind.
func get(t *testing.T, tel *Telemetry, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + tel.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s\n%s", path, resp.Status, body)
	}
	return string(body)
}

// samples parses Prometheus' text format into series → value.
func samples(t *testing.T, page string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for s := bufio.NewScanner(strings.NewReader(page)); s.Scan(); {
		line := s.Text()
		i := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || i < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Fatalf("bad line %q", line)
		}
		out[line[:i]] = v
	}
	return out
}

// publish has figures as a proxy reads its own, with losses that a test may add to.
func publish(t *testing.T) (lost *Counters) {
	lost = NewCounters()
	number := func(n int64) Reading { return Number(func() int64 { return n }) }
	words := func(n int64, words ...string) Reading { return func(show Show) { show(n, words...) } }
	Publish(Readings{
		Clients: number(5), UpstreamConnections: number(6), LocksHeld: number(7), LocksWaiting: number(8),
		LocksGranted: words(3, "plain"), LocksLost: lost.Read, LocksEnded: words(4, "plain", "expired"), LocksRenewed: words(3, "error"), LocksHandedOff: words(3, "plain"),
		OldestHold: number(90_000), LongestWait: number(250), LocksUnavailable: words(1, "oom"),
		QuorumNodes: func(show Show) { show(2, "up"); show(0, "young"); show(1, "down") }, CertificateEnd: words(7, "/etc/tls.crt"), FileUnusable: words(0, "/etc/tls.crt"), LinesDropped: number(0),
	})
	t.Cleanup(func() { published.Store(nil) })
	return lost
}

func countSomething(ctx context.Context) {
	VerbDone(ctx, "LOCK", "ok", 300*time.Microsecond)
	VerbDone(ctx, "LOCK", "nil", 3*time.Second)
	LockGranted("plain", 200*time.Microsecond)
	LockGranted("plain", 90*time.Second)
	LockReleased("plain", 2*time.Millisecond)
	RenewalLate(7 * time.Millisecond)
	ScriptDone("acquire", Clock()-400*time.Millisecond)
	run := Run{String: 15, Hash: 1}
	run.Upstream(300 * time.Microsecond)
	run.Proxy(30 * time.Microsecond)
}

func TestScrapeShowsWhatWasCounted(t *testing.T) {
	ctx := context.Background()
	countSomething(ctx) // before Start: goes nowhere, harms nothing
	locks := publish(t)
	tel := start(t, Options{ServiceVersion: "1.2.3", MetricsListen: "127.0.0.1:0", Handlers: map[string]http.Handler{
		"GET /other": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here\n") }),
	}})
	before := samples(t, get(t, tel, "/metrics")) // other tests have counted, too

	atomics := map[string]interface {
		Add(int64)
		Value() int64
	}{
		"lockproxy_clients_rejected_total":   ClientsRejected,
		"lockproxy_entries_failed_total":     EntriesFailed,
		"lockproxy_commands_forwarded_total": Commands,
		"lockproxy_pipes":                    Pipes,
		"lockproxy_pipe_reconnects_total":    PipeReconnects,
		"lockproxy_pipe_failures_total":      PipeFailures,
		"lockproxy_master_switches_total":    MasterSwitches,
	}
	var n int64
	for _, a := range atomics {
		n += 11
		a.Add(n)
	}
	countSomething(ctx)
	countSomething(ctx)
	locks.Add(2, "plain", "gone")

	page := get(t, tel, "/metrics")
	got := samples(t, page)
	for name, a := range atomics {
		if v, ok := got[name]; !ok || v != float64(a.Value()) {
			t.Errorf("%s = %v (present: %v), want %d", name, v, ok, a.Value())
		}
	}
	for series, want := range map[string]float64{
		`lockproxy_verb_duration_seconds_count{outcome="ok",verb="LOCK"}`:                       2,
		`lockproxy_verb_duration_seconds_bucket{outcome="nil",verb="LOCK",le="2.5"}`:            0,
		`lockproxy_verb_duration_seconds_bucket{outcome="nil",verb="LOCK",le="5"}`:              2,
		`lockproxy_lock_granted_total{kind="plain"}`:                                            3,
		`lockproxy_lock_wait_seconds_bucket{kind="plain",le="0.0001"}`:                          0,
		`lockproxy_lock_wait_seconds_bucket{kind="plain",le="60"}`:                              2,
		`lockproxy_lock_wait_seconds_count{kind="plain"}`:                                       4,
		`lockproxy_lock_hold_seconds_bucket{kind="plain",le="0.001"}`:                           0,
		`lockproxy_lock_hold_seconds_bucket{kind="plain",le="600"}`:                             2,
		`lockproxy_lock_lost_total{kind="plain",reason="gone"}`:                                 2,
		`lockproxy_lock_ended_total{kind="plain",reason="expired"}`:                             4,
		`lockproxy_lock_renewals_total{outcome="error"}`:                                        3,
		`lockproxy_lock_handoffs_total{kind="plain"}`:                                           3,
		`lockproxy_script_duration_seconds_bucket{script="acquire",le="10"}`:                    2,
		`lockproxy_command_duration_seconds_count{family="string",part="upstream"}`:             30,
		`lockproxy_command_duration_seconds_bucket{family="hash",part="upstream",le="0.00025"}`: 0,
		`lockproxy_command_duration_seconds_bucket{family="hash",part="upstream",le="0.0005"}`:  2,
		`lockproxy_command_duration_seconds_bucket{family="string",part="proxy",le="5e-05"}`:    30,
		`lockproxy_command_duration_seconds_sum{family="string",part="upstream"}`:               0.009,
		`lockproxy_lock_oldest_hold_seconds`:                                                    90,
		`lockproxy_lock_oldest_wait_seconds`:                                                    0.25,
		`lockproxy_quorum_nodes{state="up"}`:                                                    2,
		`lockproxy_quorum_nodes{state="young"}`:                                                 0,
		`lockproxy_quorum_nodes{state="down"}`:                                                  1,
		`lockproxy_lock_renewal_lateness_seconds_count`:                                         2,
		`lockproxy_lock_renewal_lateness_seconds_bucket{le="0.01"}`:                             2,
	} {
		v, ok := got[series]
		if strings.Contains(series, "_seconds_") { // durations
			v -= before[series]
		}
		if !ok || math.Abs(v-want) > 1e-9 {
			t.Errorf("%s = %v (present: %v), want %v", series, v, ok, want)
		}
	}
	for _, want := range []string{`service_name="lockproxy"`, `service_version="1.2.3"`, "go_goroutines ", "process_cpu_seconds_total "} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if body := get(t, tel, "/other"); body != "here\n" {
		t.Errorf("/other = %q", body)
	}
}

func TestStartAgainAfterShutdown(t *testing.T) {
	ctx := context.Background()
	for range 2 {
		tel, err := Start(ctx, Options{MetricsListen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		const series = `lockproxy_verb_duration_seconds_count{outcome="ok",verb="LOCK"}`
		before := samples(t, get(t, tel, "/metrics"))[series]
		VerbDone(ctx, "LOCK", "ok", 0)
		if got := samples(t, get(t, tel, "/metrics"))[series]; got != before+1 {
			t.Errorf("%v verbs, want %v and one", got, before)
		}
		if err := tel.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		countSomething(ctx)
	}
}

func TestStartRefusesABadAddress(t *testing.T) {
	if _, err := Start(context.Background(), Options{MetricsListen: "127.0.0.1:99999"}); err == nil {
		t.Error("no error")
	}
}

// What the environment asks for and is not there is said at the start, and what there is instead.
func TestStartRefusesWhatIsNotThere(t *testing.T) {
	for _, c := range []struct{ variable, value, want string }{
		{"OTEL_METRICS_EXPORTER", "carrier-pigeon", "otlp, none"},
		{"OTEL_METRICS_EXPORTER", "prometheus", "--metrics-listen"},
		{"OTEL_TRACES_EXPORTER", "console", "otlp, none"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"},
		{"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc", "http/protobuf"},
	} {
		t.Run(c.variable+" "+c.value, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv(c.variable, c.value)
			_, err := Start(context.Background(), Options{MetricsListen: "127.0.0.1:0"})
			if err == nil || !strings.Contains(err.Error(), c.variable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that names %s", err, c.want)
			}
			if kept.Load() {
				t.Error("durations are kept after a failed Start")
			}
		})
	}
}

// sockets counts the process' open sockets.
func sockets(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here: ", err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func TestNothingLeavesUnlessAskedFor(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no variable":    {},
		"none":           {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
		"sdk disabled":   {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"only a service": {"OTEL_SERVICE_NAME": "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			before, running := sockets(t), goleak.IgnoreCurrent()
			tel := start(t, Options{})
			countSomething(context.Background())
			_, span := Span(context.Background(), "lock")
			if span.IsRecording() {
				t.Error("a span is recorded for no one")
			}
			span.End()
			if tel.Addr() != nil {
				t.Errorf("an endpoint listens on %v", tel.Addr())
			}
			if after := sockets(t); after > before { // fewer: an earlier test has just let go of one
				t.Errorf("%d sockets before, %d after", before, after)
			}
			if err := goleak.Find(running); err != nil {
				t.Errorf("goroutines were started: %v", err)
			}
		})
	}
}

// collector is an OTLP/HTTP receiver that remembers what was posted where.
type collector struct {
	mu    sync.Mutex
	posts map[string][]byte
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.posts[r.URL.Path] = append(c.posts[r.URL.Path], body...)
}

func (c *collector) got(path, word string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Contains(string(c.posts[path]), word)
}

func TestShutdownFlushesToOTLP(t *testing.T) {
	c := &collector{posts: map[string][]byte{}}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	ctx := context.Background()
	tel, err := Start(ctx, Options{ServiceVersion: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	_, span := Span(ctx, "lock.wait", attribute.String("kind", "plain"))
	if !span.IsRecording() {
		t.Error("the span is not recorded")
	}
	span.End()
	countSomething(ctx)
	if err := tel.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][2]string{
		{"/v1/traces", "lock.wait"}, {"/v1/traces", "1.2.3"},
		{"/v1/metrics", "lockproxy.lock.wait"}, {"/v1/metrics", "lockproxy.commands.forwarded"},
		{"/v1/metrics", "lockproxy.command.duration"},
	} {
		if !c.got(want[0], want[1]) {
			t.Errorf("%s did not get %q", want[0], want[1])
		}
	}
	if _, span := Span(ctx, "late"); span.IsRecording() {
		t.Error("a span is recorded after Shutdown")
	}
}

func TestCountersFromManyGoroutines(t *testing.T) {
	var c Counter
	var g Gauge
	words := NewCounters()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				c.Add(1)
				g.Add(1)
				g.Add(-1)
				words.Add(1, "plain", "gone")
			}
		})
	}
	wg.Wait()
	if c.Value() != 8000 || g.Value() != 0 || words.Value() != 8000 || words.Of("plain", "gone") != 8000 {
		t.Errorf("counter %d, gauge %d, counters %d", c.Value(), g.Value(), words.Value())
	}
}

// Addr returns the Prometheus endpoint's address, nil if it does not listen.
func (t *Telemetry) Addr() net.Addr {
	if t.endpoint == nil {
		return nil
	}
	return t.endpoint.Addr()
}
