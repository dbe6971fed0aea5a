package telemetry

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	documentedRow = regexp.MustCompile("(?m)^\\| `(lockproxy_\\w+)`(?: \\{([a-z, ]+)\\})? \\| (gauge|counter|histogram) \\| ")
	typeLine      = regexp.MustCompile(`(?m)^# TYPE (lockproxy_\w+) (\w+)$`)
	label         = regexp.MustCompile(`[{,](\w+)="`)
)

// TestMetricsAreDocumented holds the table in docs/OPERATIONS.md to what /metrics shows: names, types and labels.
func TestMetricsAreDocumented(t *testing.T) {
	tel := start(t, Options{MetricsListen: "127.0.0.1:0"})
	countSomething(context.Background())
	ObserveAges(func() (hold, wait time.Duration) { return 0, 0 })
	ObserveNodes(func() []string { return []string{"up", "down", "up"} })
	ObserveUnable([]string{"oom"}, func() string { return "oom" })
	ObserveCertificates(func() map[string]time.Time { return map[string]time.Time{"/etc/tls.crt": time.Unix(7, 0)} })
	t.Cleanup(func() { ages.Store(nil); states.Store(nil); unable.Store(nil); ends.Store(nil) })
	page := get(t, tel, "/metrics")
	var shown, documented []string
	for _, m := range typeLine.FindAllStringSubmatch(page, -1) {
		name := m[1]
		var labels []string
		for series := range samples(t, page) {
			if base, rest, _ := strings.Cut(series, "{"); base == name || base == name+"_count" {
				for _, l := range label.FindAllStringSubmatch("{"+rest, -1) {
					if !slices.Contains(labels, l[1]) {
						labels = append(labels, l[1])
					}
				}
			}
		}
		slices.Sort(labels)
		shown = append(shown, name+" "+m[2]+" "+strings.Join(labels, ", "))
	}
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range documentedRow.FindAllStringSubmatch(string(text), -1) {
		labels := strings.Split(m[2], ", ")
		slices.Sort(labels)
		documented = append(documented, m[1]+" "+m[3]+" "+strings.Join(labels, ", "))
	}
	slices.Sort(shown)
	slices.Sort(documented)
	if !slices.Equal(shown, documented) {
		t.Errorf("/metrics shows\n%s\ndocs/OPERATIONS.md has\n%s", strings.Join(shown, "\n"), strings.Join(documented, "\n"))
	}
}
