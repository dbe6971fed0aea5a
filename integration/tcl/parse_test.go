package main

import (
	"os"
	"path/filepath"
	"testing"
)

func parseFile(t *testing.T, name string) *outcome {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return parseOutput("unit/x", string(text))
}

func TestParseOutput(t *testing.T) {
	o := parseFile(t, "finished.txt")
	if !o.finished || o.Aborted != "" {
		t.Errorf("finished %v, aborted %q", o.finished, o.Aborted)
	}
	if o.passes() != 3 || o.Passed["twice"] != 2 || o.Passed["a | name (with ms)"] != 1 {
		t.Errorf("passed: %v", o.Passed)
	}
	if o.Ignored != 2 || o.Skipped != 1 {
		t.Errorf("ignored %d, skipped %d", o.Ignored, o.Skipped)
	}
	// Once inline and once more in the summary, but one failure.
	want := "Expected '1' to be equal to '2' (context: type eval line 2)"
	if len(o.Failed) != 1 || o.Failed["broken"] != want {
		t.Errorf("failed: %q", o.Failed)
	}
}

func TestParseAborts(t *testing.T) {
	for name, want := range map[string]string{
		"exception.txt": "exception: Executing test client: I/O error reading reply.",
		"hung.txt":      "timeout: clients state report follows.",
		"block.txt":     "an exception outside of tests: 'x' is not supported",
	} {
		o := parseFile(t, name)
		if o.finished || o.Aborted != want {
			t.Errorf("%s: finished %v, aborted %q, want %q", name, o.finished, o.Aborted, want)
		}
	}
	if o := parseFile(t, "hung.txt"); o.hung != "MULTI and script timeout" {
		t.Errorf("hung in %q", o.hung)
	}
	if o := parseOutput("unit/x", "[ok]: a (1 ms)\n"); o.finished || o.passes() != 1 {
		t.Errorf("output that breaks off: %+v", o)
	}
}
