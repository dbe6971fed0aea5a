package telemetry

import (
	"strings"
	"testing"
)

// TestFieldsAgreeWithMetrics: what INFO and LOCKPROXY STATS tell of a figure is what /metrics shows, of all its labels
// or of the one that the field counts.
func TestFieldsAgreeWithMetrics(t *testing.T) {
	lost := publish(t)
	lost.Add(2, "plain", "expired")
	lost.Add(3, "read", "gone")
	tel := start(t, Options{MetricsListen: "127.0.0.1:0"})
	ClientsRejected.Add(4)
	QueryBytes.Add(9)
	shown := samples(t, get(t, tel, "/metrics"))
	fields := map[string]int64{}
	published.Load().Fields(true, func(field string, n int64) { fields[field] = n })
	published.Load().Fields(false, func(field string, n int64) {
		if strings.HasSuffix(field, "_ms") {
			t.Errorf("%s is told without being asked for", field)
		}
	})
	told := 0
	for _, f := range figures {
		n, is := fields[f.field]
		if is != (f.field != "") {
			t.Errorf("%s: told is %v", f.name, is)
		}
		if !is {
			continue
		}
		told++
		want, found := 0.0, false
		for series, value := range shown {
			name, labels, _ := strings.Cut(series, "{")
			for _, suffix := range []string{"_total", "_seconds", "_bytes"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if name == strings.ReplaceAll(f.name, ".", "_") && (f.only == "" || strings.Contains(labels, `"`+f.only+`"`)) {
				want, found = want+value, true
			}
		}
		if f.unit == ages {
			want *= 1000
		}
		if !found && f.only == "" || float64(n) != want {
			t.Errorf("%s is %d as %s, and %v at /metrics (found: %v)", f.name, n, f.field, want, found)
		}
	}
	if told < 20 || fields["locks_lost"] != 5 || fields["oldest_hold_ms"] != 90_000 {
		t.Errorf("%d fields: %v", told, fields)
	}
}
