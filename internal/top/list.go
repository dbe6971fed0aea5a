package top

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/display"
)

// list is one that can be shown: what it is asked for by, and what each of its columns says of a row.
type list struct {
	name     string
	question []string
	all      bool // it can be asked for all proxies
	read     func(rueidis.RedisMessage) record
	same     []string // the fields by which a row is found again
	columns  []column
}

type column struct {
	title  string
	field  string // by which rows are sorted
	number bool   // as numbers, the largest first; else as words
	of     func(record) string
}

// text is a column that shows a name or a word.
func text(title, field string) column {
	return column{title, field, false, func(r record) string { return display.Shown(r[field]) }}
}

// count is a column that shows a number.
func count(title, field string) column {
	return column{title, field, true, func(r record) string { return display.Shown(r[field]) }}
}

// span is a column that shows a time in ms.
func span(title, field string) column {
	return column{title, field, true, func(r record) string {
		if r[field] == "" {
			return ""
		}
		return display.Ago(r.span(field))
	}}
}

var lists = []list{
	{"Locks", []string{"LOCKPROXY", "LOCKS"}, true, readMap, []string{"proxy", "db", "key", "kind", "owner"}, []column{
		{"LOCK", "key", false, lockName}, text("KIND", "kind"), count("DB", "db"), text("OWNER", "owner"), {"CLIENT", "addr", false, client},
		text("USER", "user"), span("HELD", "held-ms"), count("HOLDS", "holds"), {"LEASE", "ttl-ms", true, lease},
		count("RENEWED", "renewals"),
	}},
	{"Waiters", []string{"LOCKPROXY", "WAITERS"}, true, readMap, []string{"proxy", "db", "key", "kind", "owner", "client-id"}, []column{
		{"LOCK", "key", false, lockName}, text("KIND", "kind"), count("DB", "db"), count("PLACE", "place"), span("WAITING", "waiting-ms"),
		text("OWNER", "owner"), {"CLIENT", "addr", false, client}, text("USER", "user"),
	}},
	{"Clients", []string{"LOCKPROXY", "CLIENTS"}, false, readMap, []string{"id"}, []column{
		count("ID", "id"), {"CLIENT", "addr", false, client}, text("USER", "user"), count("DB", "db"), count("LOCKS", "locks"),
		{"WAITS FOR", "waits-for", false, waitsFor}, span("AGE", "age-ms"), span("IDLE", "idle-ms"), text("COMMAND", "cmd"),
		text("LIBRARY", "lib-name"),
	}},
	{"Nodes", []string{"LOCKPROXY", "NODES"}, false, readMap, []string{"name", "role"}, []column{
		text("NODE", "name"), text("ROLE", "role"), text("STATE", "state"), count("SLOTS", "slots"), text("LOCKS", "locks"),
		text("TROUBLE", "trouble"),
	}},
	{"Hot", []string{"LOCKPROXY", "HOT", "GET"}, false, readMap, []string{"key", "db"}, []column{
		{"LOCK", "key", false, lockName}, count("DB", "db"), count("WAITS", "waits"), count("OR FEWER BY", "waits-over"),
		span("WAITED", "waited-ms"),
	}},
	{"Events", []string{"LOCKPROXY", "EVENTS"}, false, readMap, []string{"id"}, []column{
		{"AT", "at", false, moment}, text("EVENT", "event"), {"LOCK", "key", false, lockName}, count("DB", "db"),
		text("KIND", "kind"), text("OWNER", "owner"), {"CLIENT", "addr", false, client}, text("USER", "user"),
		span("WAITED", "waited-ms"), span("HELD", "held-ms"), {"WHY", "reason", false, why},
	}},
	{"Proxies", []string{"LOCKPROXY", "PROXIES"}, false, readMap, []string{"id"}, []column{
		text("PROXY", "addr"), text("HOST", "host"), text("STATE", "state"), span("FOR", "state-ms"), count("HOLDS", "holds"),
		count("WAITS", "waits"), text("VERSION", "version"), span("UP", "age-ms"), text("PAGE", "page"), text("TROUBLE", "trouble"),
	}},
}

// shown are the columns of an answer: of all proxies there is one more.
func (q *query) shown() []column {
	if q.everywhere() && q.lock == nil {
		return append(slices.Clone(q.list.columns), text("PROXY", "proxy"))
	}
	return q.list.columns
}

// cells are what columns say of a row.
func cells(columns []column, r record) []string {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = c.of(r)
	}
	return all
}

// matching are the rows in which some text is, whatever its case, as they are shown.
func matching(columns []column, rows []record, some string) (all []record) {
	some = strings.ToLower(some)
	for _, r := range rows {
		if strings.Contains(strings.ToLower(strings.Join(cells(columns, r), " ")), some) {
			all = append(all, r)
		}
	}
	return all
}

// compare says in which order two rows come by a column.
func (c column) compare(a, b record) int {
	if c.number {
		return cmp.Compare(b.number(c.field), a.number(c.field))
	}
	return cmp.Compare(strings.ToLower(a[c.field]), strings.ToLower(b[c.field]))
}

// ofLocks says whether each row is about a lock.
func (l *list) ofLocks() bool {
	return slices.ContainsFunc(l.columns, func(c column) bool { return c.field == "key" })
}

// identity is what a row is found again by.
func (l *list) identity(r record) string {
	var b strings.Builder
	for _, field := range l.same {
		b.WriteString(strconv.Quote(r[field]))
	}
	return b.String()
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

func waitsFor(r record) string {
	if r["waits-for"] == "" {
		return ""
	}
	return display.Shown(r["waits-for"]) + " " + display.Ago(r.span("waiting-ms"))
}

// use is a column that shows what a user has of something: now, of how many, and how often more was refused.
func use(title, field string) column {
	return column{title, field + "-now", true, func(r record) string {
		text := display.Number(r.number(field + "-now"))
		if r[field+"-now"] == "-1" {
			text = "not counted"
		}
		if most := r.number(field + "-max"); most > 0 {
			text += " of " + display.Number(most)
		}
		if refused := r.number(field + "-refused"); refused > 0 {
			text += ", refused " + display.Number(refused)
		}
		return text
	}}
}

// head tells of the proxy itself, with what went by since the facts before, if there are any.
func head(before, now facts) []string {
	s := now.stats
	rate := func(field string) string {
		passed := now.at.Sub(before.at).Seconds()
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
		"lockproxy " + s["version"] + ", up " + display.Ago(time.Duration(s.number("uptime_in_seconds"))*time.Second) + ", before " +
			strings.TrimSpace(s["upstream"]+" "+display.Shown(s["upstream_addr"])) + "; clients: " + number("clients") + drain,
		"locks of this proxy: " + number("locks_held") + " held, the oldest for " + display.Ago(s.span("oldest_hold_ms")) + "; " + number("locks_waiting") +
			" wait, the first since " + display.Ago(s.span("longest_wait_ms")),
		"granted " + rate("locks_granted") + ", renewed " + rate("locks_renewed") + ", lost " + number("locks_lost") + " in all; commands forwarded " + rate("forwarded"),
	}
}
