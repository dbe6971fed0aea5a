package commandtable_test

import (
	"slices"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Every command of Redis that may do more than answer once on its own was looked at by a person: it is in the table,
// or there is a remark on it, as on all that is harmless on a shared connection.
func TestRedisCommandsWereReviewed(t *testing.T) {
	server := testredis.Start(t)
	all, err := redis.Values(server.Do(t, "COMMAND"), nil)
	if err != nil {
		t.Fatal(err)
	}
	tab := commandtable.New(nil, nil, commands.Rows(), nil)
	for _, entry := range all {
		fields, _ := redis.Values(entry, nil)
		name, _ := redis.String(fields[0], nil)
		flags, _ := redis.Strings(fields[2], nil)
		subs, _ := redis.Values(fields[9], nil)
		for _, sub := range subs {
			fields, _ := redis.Values(sub, nil)
			more, _ := redis.Strings(fields[2], nil)
			flags = append(flags, more...)
		}
		suspect := false
		for _, f := range []string{"admin", "noscript", "pubsub", "blocking", "no_multi", "no_auth", "no_async_loading"} {
			suspect = suspect || slices.Contains(flags, f)
		}
		if c := tab.Lookup([]byte(name)); suspect && c == nil && !commandtable.Harmless(name) {
			t.Errorf("%s %v is neither in the table nor known to be harmless", name, flags)
		}
	}
}
