package telemetry

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	update   = flag.Bool("update", false, "rewrite docs/METRICS.md")
	helpLine = regexp.MustCompile(`(?m)^# HELP (lockproxy_\w+) (.+)\n# TYPE \w+ (\w+)$`)
	label    = regexp.MustCompile(`[{,](\w+)="`)
)

// metricsPage is the whole of docs/METRICS.md: testdata/metrics.txt with a row for each metric of ours that /metrics
// shows. n is how many they are.
func metricsPage(t *testing.T, scraped string) (page string, n int) {
	text, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	series := samples(t, scraped)
	for _, m := range helpLine.FindAllStringSubmatch(scraped, -1) {
		var labels []string
		for one := range series {
			if base, rest, _ := strings.Cut(one, "{"); base == m[1] || base == m[1]+"_count" {
				for _, l := range label.FindAllStringSubmatch("{"+rest, -1) {
					if !slices.Contains(labels, l[1]) {
						labels = append(labels, l[1])
					}
				}
			}
		}
		slices.Sort(labels)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m[1], strings.Join(labels, ", "), m[3], strings.TrimSuffix(m[2], "."))
		n++
	}
	return strings.Replace(string(text), "{{rows}}\n", b.String(), 1), n
}

// TestMetricsAreDocumented: docs/METRICS.md has the names, labels, types and meanings that /metrics shows.
func TestMetricsAreDocumented(t *testing.T) {
	tel := start(t, Options{MetricsListen: "127.0.0.1:0"})
	countSomething(context.Background())
	publish(t).Add(1, "plain", "expired")
	want, n := metricsPage(t, get(t, tel, "/metrics"))
	if n < 35 {
		t.Errorf("%d metrics were found", n)
	}
	const path = "../../docs/METRICS.md"
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is stale (%v): go test ./internal/telemetry -update", path, err)
	}
}
