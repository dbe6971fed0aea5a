package stable

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

var (
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (lockproxy_\w+) (\w+)$`)
	seriesLine = regexp.MustCompile(`(?m)^(lockproxy_\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$`)
	labelName  = regexp.MustCompile(`(?:^|,)(\w+)="`)
	metricRow  = regexp.MustCompile("(?m)^\\| `(lockproxy_\\w+)` \\|")
)

// readings are of what each proxy has of its own.
func readings() telemetry.Readings {
	words := func(values ...string) telemetry.Reading { return func(show telemetry.Show) { show(1, values...) } }
	return telemetry.Readings{
		telemetry.Clients: words(), telemetry.UpstreamConnections: words(), telemetry.LocksHeld: words(), telemetry.LocksWaiting: words(),
		telemetry.LocksGranted: words("plain"), telemetry.LocksLost: words("plain", "gone"), telemetry.LocksEnded: words("plain", "expired"),
		telemetry.LocksRenewed: words("ok"), telemetry.LocksHandedOff: words("plain"), telemetry.OldestHold: words(), telemetry.LongestWait: words(),
		telemetry.LocksUnavailable: words("oom"), telemetry.QuorumNodes: words("up"), telemetry.CertificateEnd: words("/tls.crt"),
		telemetry.FileUnusable: words("/tls.crt"), telemetry.LinesDropped: words(),
	}
}

// scrape is /metrics when everything has been counted.
func scrape(t *testing.T) string {
	t.Helper()
	ctx := context.Background()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
	tel, err := telemetry.Start(ctx, telemetry.Options{MetricsListen: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Shutdown(ctx) })
	telemetry.Publish(readings())
	telemetry.VerbDone(ctx, "LOCK", "ok", time.Millisecond)
	telemetry.LockGranted("plain", time.Millisecond)
	telemetry.LockReleased("plain", time.Millisecond)
	telemetry.RenewalLate(time.Millisecond)
	telemetry.ScriptDone("acquire", telemetry.Clock())
	run := telemetry.Run{telemetry.String: 1}
	run.Upstream(time.Millisecond)
	run.Proxy(time.Millisecond)
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestMetrics: names, types and labels, as /metrics shows them.
func TestMetrics(t *testing.T) {
	page := scrape(t)
	labels := map[string]map[string]bool{}
	for _, found := range typeLine.FindAllStringSubmatch(page, -1) {
		labels[found[1]] = map[string]bool{}
	}
	for _, found := range seriesLine.FindAllStringSubmatch(page, -1) {
		for _, label := range labelName.FindAllStringSubmatch(found[2], -1) {
			if label[1] != "le" { // of a histogram
				labels[found[1]][label[1]] = true
			}
		}
	}
	var now, names []string
	for _, found := range typeLine.FindAllStringSubmatch(page, -1) {
		names = append(names, found[1])
		now = append(now, strings.TrimSpace(fmt.Sprint(found[1], " ", found[2], " ", strings.Join(slices.Sorted(maps.Keys(labels[found[1]])), " "))))
	}
	hold(t, "metrics", now)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "METRICS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range metricRow.FindAllSubmatch(text, -1) {
		if !slices.Contains(names, string(row[1])) {
			t.Errorf("docs/METRICS.md has %s, and this test does not count it", row[1])
		}
	}
}
