package main

import (
	"bufio"
	"regexp"
	"strings"
)

// outcome is what one run of one unit said. Names are not unique within a unit,
// so passes are counted by name.
type outcome struct {
	Unit     string
	Passed   map[string]int
	Failed   map[string]string // by name; the first lines of what was wrong
	Ignored  int               // denied by tags, or not for external servers
	Skipped  int               // left out by --skiptest
	Aborted  string            // why the unit did not come to its end; "" when it did
	Seconds  float64           // how long it took
	hung     string            // the test in which it stopped for ever, when the suite said so
	finished bool
}

// passes counts the tests that passed.
func (o *outcome) passes() int {
	n := 0
	for _, times := range o.Passed {
		n += times
	}
	return n
}

var (
	colours  = regexp.MustCompile("\x1b\\[[0-9;]*m")
	statuses = regexp.MustCompile(`^\[(ok|err|skip|ignore|exception|TIMEOUT|ready|\d+/\d+ done)\]: ?(.*)$`)
	elapsed  = regexp.MustCompile(` \(\d+ ms\)$`)
	running  = regexp.MustCompile(`=> \(IN PROGRESS\) (.*)$`)
	inFile   = regexp.MustCompile(`^(.*) in tests/\S+\.tcl$`)
)

const reasonLines = 3 // of a failure's text are kept

// parseOutput reads what the suite printed about one unit. Failures come twice;
// the second time, in the summary, is after the end that matters.
func parseOutput(unit, text string) *outcome {
	o := &outcome{Unit: unit, Passed: map[string]int{}, Failed: map[string]string{}}
	scan := bufio.NewScanner(strings.NewReader(text))
	scan.Buffer(nil, len(text)+1)
	failing := "" // the failed test whose text goes on
	lines := 0
	for scan.Scan() {
		line := colours.ReplaceAllString(scan.Text(), "")
		if strings.TrimSpace(line) == "The End" {
			o.finished = o.Aborted == ""
			return o
		}
		m := statuses.FindStringSubmatch(line)
		if p := running.FindStringSubmatch(line); p != nil && o.Aborted != "" {
			o.hung = p[1]
		}
		if m == nil {
			if failing != "" && lines < reasonLines && strings.TrimSpace(line) != "" {
				o.Failed[failing] = strings.TrimSpace(o.Failed[failing] + " " + strings.TrimSpace(line))
				lines++
			}
			continue
		}
		failing, lines = o.note(m[1], m[2]), 0
	}
	return o
}

// note counts one result and returns the name of the test whose text follows.
func (o *outcome) note(status, rest string) string {
	switch status {
	case "ok":
		o.Passed[elapsed.ReplaceAllString(rest, "")]++
	case "err":
		m := inFile.FindStringSubmatch(rest)
		if m == nil {
			// Not a test's: the block around the tests broke, and the rest of it was not run.
			o.Aborted = "an exception outside of tests: " + rest
			return ""
		}
		if _, twice := o.Failed[m[1]]; twice {
			return ""
		}
		o.Failed[m[1]] = ""
		return m[1]
	case "skip":
		o.Skipped++
	case "ignore":
		o.Ignored++
	case "exception", "TIMEOUT":
		o.Aborted = strings.ToLower(status) + ": " + rest
	}
	return ""
}
