package top

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// What is shown, with names that would break a line, or do something to a terminal.
func TestLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("L", 200)
	f := facts{at: time.Unix(10, 0), fails: make([]error, len(lists)), rows: [][]record{
		{
			{"key": "orders", "db": "0", "addr": "10.0.0.1:5", "name": "shop", "held-ms": "9000", "ttl-ms": "12000", "lease-ms": "30000", "of": "4711", "told-ms-ago": "2500", "silent": "far\x1b[2J"},
			{"key": "", "db": "0", "addr": "10.0.0.1:6", "held-ms": "1000"},
			{"key": "bad\x1b[2J\xff\n", "db": "0"}, {"key": "東京", "db": "0"}, {"key": "e\u0301", "db": "0"}, {"key": long, "db": "0"},
		},
		nil,
		{{"host": "here", "state": "self"}},
		{{"at": "2026-11-27T10:00:00.5Z", "event": "loss", "more": "1234"}, {"at": "2026-11-27T10:00:00.5Z", "event": "reload", "reason": "OK\x1b[m"}},
	}, stats: record{"version": "1.2", "uptime_in_seconds": "70", "locks_granted": "300", "drain_ms": "100", "drain_ends_in_ms": "9000", "drain_waits_for": "clients\x1b"}}
	f.fails[1] = errors.New("NOPERM \x1b]0;x")
	all := f.lines(facts{at: time.Unix(8, 0), stats: record{"locks_granted": "100"}})
	text := strings.Join(all, "\n")
	for _, want := range []string{
		`lockproxy 1.2, up 1 min 10 s`, `; drains, ends in 9.0 s: clients\x1b`, "granted 100/s", "longest first; locks in all: 4,711; 2.5 s ago; no answer from far\\x1b[2J\n",
		"\norders ", "10.0.0.1:5 shop  9.0 s ", "12 s of 30 s", "\n\"\" ", `bad\x1b[2J\xff\n `, "1,234 more were left out", `OK\x1b[m`, `NOPERM \x1b]0;x`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Contains(text, "\xff") {
		t.Errorf("%q", text)
	}
	title := all[slices.IndexFunc(all, func(line string) bool { return strings.HasPrefix(line, "LOCK ") })]
	if column := strings.Index(title, "HELD"); column < 0 || column > 100 {
		t.Errorf("a long name hides who holds what: %q", title)
	}
}

// Each column begins where its title does, whatever stands in those before.
func TestTable(t *testing.T) {
	t.Parallel()
	got := table([]column{{"A", 4, func(r record) string { return r["a"] }}, text("B", 9, "b")}, []record{
		{"a": "東京", "b": "1"}, {"a": "e\u0301", "b": "2"}, {"a": "long one", "b": "3"}, {"b": "4"},
	})
	if want := []string{"A     B", "東京  1", "e\u0301     2", "lon…  3", "      4"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A text is cut to so many columns of a terminal, however many bytes and letters it has.
func TestClip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"東京", 4, "東京"}, {"東京都", 4, "東…"}, {"東京都", 5, "東京…"}, {"e\u0301e\u0301", 2, "e\u0301e\u0301"},
		{"e\u0301e\u0301e", 2, "e\u0301…"}, {"", 0, ""}, {"ab", 1, "…"},
	} {
		if got := clip(c.text, c.most); got != c.want || columnsOf(got) > c.most {
			t.Errorf("%q in %d columns is %q", c.text, c.most, got)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--every 1ms": "--every: 1ms is below", "--rows 0": "--rows: 0 is not", "--address http://x": "--address: not host:port", "x": `"x" is no flag`, "--all": "not defined", "--once": "",
	} {
		_, err := parse(strings.Fields(line))
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
