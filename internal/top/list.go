package top

import (
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/display"
)

// list is one that can be shown: what it is asked for by, and what each of its columns says of a row.
type list struct {
	name     string
	question []string
	read     func(rueidis.RedisMessage) (record, error)
	columns  []column
}

type column struct {
	title string
	of    func(record) string
}

// text is a column that shows a name or a word.
func text(title, field string) column {
	return column{title, func(r record) string { return display.Shown(r[field]) }}
}

// span is a column that shows a time in ms.
func span(title, field string) column {
	return column{title, func(r record) string { return display.Ago(r.span(field)) }}
}

var lists = []list{
	{"Locks", []string{"LOCKPROXY", "LOCKS"}, readMap, []column{
		text("LOCK", "key"), text("KIND", "kind"), text("DB", "db"), text("OWNER", "owner"), {"CLIENT", client}, text("USER", "user"),
		span("HELD", "held-ms"), text("HOLDS", "holds"), {"LEASE", lease}, text("RENEWED", "renewals"),
	}},
	{"Waiters", []string{"LOCKPROXY", "WAITERS"}, readMap, []column{
		text("LOCK", "key"), text("KIND", "kind"), text("DB", "db"), text("PLACE", "place"), span("WAITING", "waiting-ms"), text("OWNER", "owner"),
		{"CLIENT", client}, text("USER", "user"),
	}},
	{"Clients", []string{"LOCKPROXY", "CLIENTS"}, readMap, []column{
		text("ID", "id"), {"CLIENT", client}, text("USER", "user"), text("DB", "db"), text("LOCKS", "locks"), {"WAITS FOR", waitsFor},
		span("AGE", "age-ms"), span("IDLE", "idle-ms"), text("COMMAND", "cmd"), text("LIBRARY", "lib-name"),
	}},
	{"Nodes", []string{"LOCKPROXY", "NODES"}, readMap, []column{
		text("NODE", "name"), text("ROLE", "role"), text("STATE", "state"), text("SLOTS", "slots"), text("LOCKS", "locks"), text("TROUBLE", "trouble"),
	}},
	{"Hot", []string{"LOCKPROXY", "HOT", "GET"}, readMap, []column{
		text("LOCK", "key"), text("DB", "db"), text("WAITS", "waits"), text("OR FEWER BY", "waits-over"), span("WAITED", "waited-ms"),
	}},
	{"Slow", []string{"LOCKPROXY", "SLOWLOG", "GET"}, readSlow, []column{
		{"AT", func(r record) string { return time.Unix(r.number("at"), 0).Format(time.TimeOnly) }}, micros("TOOK", "took"), micros("REDIS", "upstream"),
		{"CLIENT", client}, text("USER", "user"), text("COMMAND", "command"),
	}},
}

// cells are what the columns say of a row.
func (l *list) cells(r record) []string {
	all := make([]string, len(l.columns))
	for i, c := range l.columns {
		all[i] = c.of(r)
	}
	return all
}

// matching are the rows in which some text is, whatever its case, as they are shown.
func (l *list) matching(rows []record, some string) (all [][]string) {
	some = strings.ToLower(some)
	for _, r := range rows {
		if cells := l.cells(r); strings.Contains(strings.ToLower(strings.Join(cells, " ")), some) {
			all = append(all, cells)
		}
	}
	return all
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

// micros is a column that shows µs as ms.
func micros(title, field string) column {
	return column{title, func(r record) string {
		if r[field] == "" {
			return ""
		}
		return display.Brief(time.Duration(r.number(field)) * time.Microsecond)
	}}
}

// words are those of a command, as one would type them.
func words(command []string) string {
	for i, word := range command {
		if word == "" || strings.ContainsAny(word, " \"") {
			command[i] = `"` + strings.ReplaceAll(word, `"`, `\"`) + `"`
		}
	}
	return strings.Join(command, " ")
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
	return []string{
		"lockproxy " + s["version"] + ", up " + display.Ago(time.Duration(s.number("uptime_in_seconds"))*time.Second) + ", before " +
			strings.TrimSpace(s["upstream"]+" "+display.Shown(s["upstream_addr"])) + "; clients: " + number("clients"),
		"locks of this proxy: " + number("locks_held") + " held, the oldest for " + display.Ago(s.span("oldest_hold_ms")) + "; " + number("locks_waiting") +
			" wait, the first since " + display.Ago(s.span("longest_wait_ms")),
		"granted " + rate("locks_granted") + ", renewed " + rate("locks_renewed") + ", lost " + number("locks_lost") + " in all; commands forwarded " + rate("forwarded"),
	}
}
