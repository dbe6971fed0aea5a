package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"github.com/lockproxy/lockproxy/internal/display"
)

// list is one that is shown: what it is asked for by, but for the number of rows, which is the second word, and what
// each of its columns says of a row.
type list struct {
	name     string
	question []string
	columns  []column
}

type column struct {
	title string
	most  int // of the terminal's columns
	of    func(record) string
}

// text is a column that shows a name, a word or a number.
func text(title string, most int, field string) column {
	return column{title, most, func(r record) string { return display.Shown(r[field]) }}
}

// span is a column that shows a time in ms.
func span(title, field string) column {
	return column{title, 12, func(r record) string {
		if r[field] == "" {
			return ""
		}
		return display.Ago(r.span(field))
	}}
}

var (
	lockColumn   = column{"LOCK", 36, lockName}
	clientColumn = column{"CLIENT", 36, client}
)

var lists = []list{
	{"Locks, those held longest first", []string{"LOCKS", "ALL"}, []column{
		lockColumn, text("KIND", 5, "kind"), text("DB", 5, "db"), clientColumn, span("HELD", "held-ms"), {"LEASE", 24, lease},
		text("USER", 16, "user"), text("HOLDS", 6, "holds"), text("OWNER", 48, "owner"), text("PROXY", 36, "proxy"),
	}},
	{"Waiters, those who have waited longest first", []string{"WAITERS", "ALL"}, []column{
		lockColumn, text("KIND", 5, "kind"), text("DB", 5, "db"), clientColumn, span("WAITING", "waiting-ms"), text("PLACE", 6, "place"),
		text("USER", 16, "user"), text("OWNER", 48, "owner"), text("PROXY", 36, "proxy"),
	}},
	{"Proxies", []string{"PROXIES"}, []column{
		text("HOST", 36, "host"), text("STATE", 6, "state"), span("FOR", "state-ms"), text("HOLDS", 9, "holds"), text("WAITS", 9, "waits"),
		span("UP", "age-ms"), text("VERSION", 16, "version"), text("ID", 36, "id"), text("TROUBLE", 60, "trouble"),
	}},
	{"Events", []string{"EVENTS"}, []column{
		{"AT", 14, moment}, text("EVENT", 8, "event"), lockColumn, clientColumn, span("WAITED", "waited-ms"), span("HELD", "held-ms"), {"WHY", 60, why},
	}},
}

// lockName is the name of a lock, which may be empty, if the row is about one.
func lockName(r record) string {
	if r["db"] == "" && r["key"] == "" {
		return ""
	}
	return cmp.Or(display.Shown(r["key"]), `""`)
}

// moment is when an event was, by this machine's clock.
func moment(r record) string {
	at, _ := time.Parse(time.RFC3339Nano, r["at"])
	return at.Local().Format("01-02 15:04:05")
}

// why is the reason of an event, or how many there were that have none of their own.
func why(r record) string {
	if r["more"] != "" {
		return display.Number(r.number("more")) + " more were left out"
	}
	return display.Shown(r["reason"])
}

// client is who it is: the address, and the name it has given itself.
func client(r record) string {
	return strings.TrimSpace(display.Shown(r["addr"]) + " " + display.Shown(r["name"]))
}

// lease is how much of a lock's lease is left, if the proxy knows.
func lease(r record) string {
	return display.Ago(r.span("ttl-ms")) + " of " + display.Ago(r.span("lease-ms"))
}

// lines are what is shown: the proxy itself, with what went by since the facts before, if there are any, and the lists.
func (f *facts) lines(before facts) []string {
	all := f.head(before)
	for i, l := range lists {
		all = append(all, "", l.name+f.told(i))
		if err := f.fails[i]; err != nil {
			all = append(all, display.Shown(err.Error()))
		} else if len(f.rows[i]) > 0 {
			all = append(all, table(l.columns, f.rows[i])...)
		}
	}
	return all
}

// told is how old a list of all proxies is, of how many locks it is, and which proxies have not told of theirs.
func (f *facts) told(list int) (text string) {
	if len(f.rows[list]) == 0 {
		return ""
	}
	r := f.rows[list][0]
	if r["of"] != "" {
		text += "; locks in all: " + display.Number(r.number("of"))
	}
	if r["told-ms-ago"] != "" {
		text += "; " + display.Ago(r.span("told-ms-ago")) + " ago"
	}
	if r["silent"] != "" {
		text += "; no answer from " + display.Shown(r["silent"])
	}
	return text
}

func (f *facts) head(before facts) []string {
	s := f.stats
	rate := func(field string) string {
		passed := f.at.Sub(before.at).Seconds()
		if before.stats == nil || passed <= 0 {
			return "–"
		}
		return display.Number(int64(float64(s.number(field)-before.stats.number(field))/passed+0.5)) + "/s"
	}
	number := func(field string) string { return display.Number(s.number(field)) }
	drain := ""
	if s["drain_ms"] != "" {
		drain = "; drains, ends in " + display.Ago(s.span("drain_ends_in_ms")) + ": " + display.Shown(s["drain_waits_for"])
	}
	return []string{
		fmt.Sprintf("lockproxy %s, up %s, before %s; clients: %s%s", display.Shown(s["version"]), display.Ago(1000*s.span("uptime_in_seconds")),
			strings.TrimSpace(s["upstream"]+" "+display.Shown(s["upstream_addr"])), number("clients"), drain),
		fmt.Sprintf("locks of this proxy: %s held, the oldest for %s; %s wait, the first since %s", number("locks_held"), display.Ago(s.span("oldest_hold_ms")),
			number("locks_waiting"), display.Ago(s.span("longest_wait_ms"))),
		fmt.Sprintf("granted %s, renewed %s, lost %s in all; commands forwarded %s", rate("locks_granted"), rate("locks_renewed"), number("locks_lost"), rate("forwarded")),
	}
}

// table is rows below the titles of columns, which are as wide as what they show, up to their bounds.
func table(columns []column, rows []record) []string {
	lines := make([]string, len(rows)+1)
	for i, c := range columns {
		cells, widest := []string{c.title}, 0
		for _, r := range rows {
			cells = append(cells, clip(c.of(r), c.most))
		}
		for _, cell := range cells {
			widest = max(widest, columnsOf(cell))
		}
		for at, cell := range cells {
			if lines[at] += cell; i < len(columns)-1 {
				lines[at] += strings.Repeat(" ", widest-columnsOf(cell)+2)
			}
		}
	}
	return lines
}

// columnsOf is how many columns of a terminal a text takes.
func columnsOf(text string) (n int) {
	for _, r := range text {
		n += columnsOfRune(r)
	}
	return n
}

func columnsOfRune(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case unicode.Is(unicode.M, r): // it stands on the letter before it
		return 0
	case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// clip leaves of a text what fits into so many columns.
func clip(text string, most int) string {
	if columnsOf(text) <= most {
		return text
	}
	n := 0
	for at, r := range text {
		if n += columnsOfRune(r); n > most-1 {
			return text[:at] + "…"
		}
	}
	return text
}
