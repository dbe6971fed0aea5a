package display

import (
	"strings"
	"testing"
	"time"
)

func TestShown(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "plain": "plain", "with space": "with space", "tab\t": `tab\t`, "\u0645\u0631": "\u0645\u0631",
		strings.Repeat("a", 92): strings.Repeat("a", 92), strings.Repeat("a", 93): strings.Repeat("a", 72) + "…" + strings.Repeat("a", 20) + " (93 bytes)",
		"e" + strings.Repeat("\u0301", 5): "e\u0301\u0301\u0301" + `\u0301\u0301`,
		strings.Repeat("\xff", 200):       strings.Repeat(`\xff`, 72) + "…" + strings.Repeat(`\xff`, 20) + " (200 bytes)",
	} {
		if got := Shown(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0 s", 1500 * time.Millisecond: "1.5 s", 59 * time.Second: "59 s", time.Minute: "1 min", 200 * time.Second: "3 min 20 s", 125 * time.Minute: "2 h 5 min", 50 * time.Hour: "2 d 2 h",
	} {
		if got := Ago(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", -100: "-100"} {
		if got := Number(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	if got := Brief(1234567 * time.Nanosecond); got != "1.2 ms" {
		t.Error(got)
	}
}
