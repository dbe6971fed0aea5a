package top

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/display"
)

// about is the list of those that have to do with one lock: its holders, those that wait, and the nodes of a quorum.
var about = list{
	name: "Lock", question: []string{"LOCKPROXY", "WAITERS"}, read: readMap, all: true,
	same: []string{"who", "kind", "owner", "client-id", "name", "proxy"},
	columns: []column{
		text("WHO", "who"), text("KIND", "kind"), text("OWNER", "owner"), {"CLIENT", "addr", false, client},
		{"WHERE", "proxy", false, where}, span("FOR", "held-ms"), count("HOLDS", "holds"), {"RENEWED", "renewed-ms-ago", true, renewed},
		count("PLACE", "place"),
	},
}

// readLock makes of the answers to SELECT and LOCKINFO, and of the rows of all that wait, what is shown of the lock that a
// row is about. Where the proxy does not answer these, as to one who may not read the key, it is that row.
func (f *facts) readLock(row record, selected, told rueidis.RedisResult) error {
	waiters := slices.DeleteFunc(f.rows, func(w record) bool { return w["key"] != row["key"] || w["db"] != row["db"] })
	for _, w := range waiters {
		w["who"], w["held-ms"] = "waits", w["waiting-ms"]
	}
	info, err := told.ToMessage()
	if err = cmp.Or(selected.Error(), err); err == nil {
		fields, _ := info.AsMap()
		f.rows = slices.Concat(within(fields["holders"], "holds it"), waiters, within(fields["nodes"], "node"))
		f.lock = how(row, readMap(info))
		return nil
	}
	if _, refused := rueidis.IsRedisErr(err); !refused {
		return err
	}
	f.lock, f.rows = named(row)+display.Whole(err.Error()), waiters
	if row["held-ms"] != "" {
		known := maps.Clone(row)
		known["who"] = "held it when it was chosen"
		f.rows = append([]record{known}, waiters...)
	}
	return nil
}

// within reads a list of maps, of those that are called so.
func within(m rueidis.RedisMessage, who string) []record {
	all, _ := m.ToArray() // a quorum alone has nodes
	rows := readRows(all, readMap)
	for _, r := range rows {
		r["who"] = who
	}
	return rows
}

// named is what the line about a lock begins with.
func named(row record) string { return "lock " + lockName(row) + ", database " + row["db"] + ": " }

// how says how a lock is.
func how(row, lock record) string {
	text := named(row)
	switch left := lock.number("ttl-ms"); {
	case lock["kind"] == "none":
		text += "nobody holds it"
	case left < 0:
		text += lock["kind"] + ", without an end"
	default:
		text += lock["kind"] + ", " + display.Ago(time.Duration(left)*time.Millisecond) + " of the lease are left"
	}
	if lock["fence"] != "" {
		text += "; last fencing token " + lock["fence"]
	}
	return text + "; wait here: " + lock["waiting-here"] + ", in the fair queue: " + lock["waiting-queue"]
}

// where says where somebody is, as far as that is known.
func where(r record) string {
	switch {
	case r["proxy"] != "":
		return display.Shown(r["proxy"])
	case r["redisson"] != "":
		return "Redisson " + display.Shown(r["redisson"]) + ", thread " + display.Shown(r["thread"])
	case r["state"] != "":
		return display.Shown(r["state"] + " " + r["trouble"])
	case r["client-id"] != "":
		return "this proxy"
	}
	return "not known"
}

// renewed is when the watchdog last renewed a lock.
func renewed(r record) string {
	switch {
	case r["watched"] == "":
		return ""
	case r["watched"] == "0":
		return "ends by itself"
	case r.number("renewed-ms-ago") < 0:
		return "not yet"
	}
	return display.Ago(r.span("renewed-ms-ago")) + " ago"
}
