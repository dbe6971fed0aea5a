package commandtable

import (
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Nobody adds a row without saying why.
func TestRowsHaveNotes(t *testing.T) {
	seen := make(map[string]bool)
	for _, rows := range [][]Command{stateful, optional, refused, answered, passed, scripted} {
		for _, c := range rows {
			if !strings.HasSuffix(c.Note, ".") || strings.Contains(c.Note, "|") {
				t.Errorf("%s: its note is %q, it wants a sentence", c.Name, c.Note)
			}
			if seen[c.Name] || c.Name != strings.ToLower(c.Name) {
				t.Errorf("%s: a second row, or not in lower case", c.Name)
			}
			seen[c.Name] = true
		}
	}
	for name := range remarks {
		if seen[name] {
			t.Errorf("%s: a remark on a command that has a row", name)
		}
	}
}

// Every command of Redis that may do more than answer once on its own was looked at by a person: it is in the table,
// or there is a remark on it, as on all that is harmless on a shared connection.
func TestRedisCommandsWereReviewed(t *testing.T) {
	server := testredis.Start(t)
	all, err := redis.Values(server.Do(t, "COMMAND"), nil)
	if err != nil {
		t.Fatal(err)
	}
	tab := New(nil, nil, nil, nil)
	for _, entry := range all {
		fields, _ := redis.Values(entry, nil)
		name, _ := redis.String(fields[0], nil)
		flags, _ := redis.Strings(fields[2], nil)
		suspect := false
		for _, f := range []string{"admin", "noscript", "pubsub", "blocking", "no_multi", "no_auth", "no_async_loading"} {
			suspect = suspect || slices.Contains(flags, f)
		}
		_, harmless := remarks[name]
		if c := tab.Lookup([]byte(name)); suspect && c == nil && !harmless {
			t.Errorf("%s %v is neither in the table nor known to be harmless", name, flags)
		}
	}
}
