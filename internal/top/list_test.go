package top

import (
	"strings"
	"testing"
)

// A drain is seen in the head while it lasts.
func TestHeadOfADrain(t *testing.T) {
	s := record{"version": "1", "drain_ms": "100", "drain_ends_in_ms": "9000", "drain_waits_for": "clients that held locks: 1 (a\x1b[1m holds l)"}
	if got := head(facts{}, facts{stats: s})[0]; !strings.Contains(got, "; drains, ends in 9.0 s: clients that held locks: 1 (a") || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
	if got := head(facts{}, facts{stats: record{"version": "1"}})[0]; strings.Contains(got, "drain") {
		t.Errorf("%q", got)
	}
}
