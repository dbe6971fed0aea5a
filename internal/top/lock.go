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

// readLock makes of the answers to SELECT, LOCKINFO and LOCKPROXY LOCKS, and of the rows of all that wait, what is shown of
// the lock that a row is about. Where LOCKINFO is refused, as to one who may not read the key, it is what the proxies know.
func (f *facts) readLock(row record, said []rueidis.RedisResult) error {
	other := func(r record) bool { return r["key"] != row["key"] || r["db"] != row["db"] }
	waiters := slices.DeleteFunc(f.rows, other)
	for _, w := range waiters {
		w["who"], w["held-ms"] = "waits", w["waiting-ms"]
	}
	list, _ := said[2].ToMessage()
	known := slices.DeleteFunc(within(list, "holds it"), other)
	info, err := said[1].ToMessage()
	if err = cmp.Or(said[0].Error(), err); err != nil {
		if _, refused := rueidis.IsRedisErr(err); !refused {
			return err
		}
		f.lock, f.rows = named(row)+display.Whole(err.Error()), append(known, waiters...)
		return nil
	}
	fields, _ := info.AsMap()
	holders := within(fields["holders"], "holds it")
	for _, h := range holders {
		for _, k := range known {
			if k["owner"] == h["owner"] && (h["kind"] == "" || h["kind"] == k["kind"]) {
				maps.Copy(k, h) // what LOCKINFO says is of now
				maps.Copy(h, k)
			}
		}
	}
	f.rows = slices.Concat(holders, waiters, within(fields["nodes"], "node"))
	f.lock = how(row, readMap(info))
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
