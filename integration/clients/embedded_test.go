package clients

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// The embedded store knows less of COMMAND; clients read what lockproxy makes of it all the same.
func TestDropinCommandEmbedded(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, "")
	harness.Protocols(t, func(t *testing.T, proto int) {
		w := harness.Dial(t, p.Addr())
		w.Do("HELLO", fmt.Sprint(proto))
		_, table := harness.Split(w.Do("COMMAND"))
		_, names := harness.Split(w.Do("COMMAND", "LIST"))
		names = slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, "|") })
		if count := w.Do("COMMAND", "COUNT"); len(table) < 150 || len(names) != len(table) || count != fmt.Sprintf(":%d\r\n", len(table)) {
			t.Errorf("COMMAND has %d entries, LIST %d, COUNT says %q", len(table), len(names), count)
		}
		head, docs := harness.Split(w.Do("COMMAND", "DOCS"))
		want := map[int]string{2: fmt.Sprintf("*%d\r\n", 2*len(table)), 3: fmt.Sprintf("%%%d\r\n", len(table))}[proto]
		if head != want || len(docs) != 2*len(table) {
			t.Errorf("COMMAND DOCS begins %q with %d elements", head, len(docs))
		}
		if _, got := harness.Split(w.Do("COMMAND", "INFO", "get", "lock", "nosuch")); len(got) != 3 || !strings.Contains(got[0], "get\r\n") || !strings.Contains(got[1], "lock\r\n") {
			t.Errorf("COMMAND INFO: %q", got)
		}
		if got := w.Do("COMMAND", "GETKEYS", "LOCK", "a"); got != "*1\r\n$1\r\na\r\n" {
			t.Errorf("COMMAND GETKEYS: %q", got)
		}
		for _, sections := range [][]string{{"INFO"}, {"INFO", "lockproxy"}, {"INFO", "everything"}} {
			got := w.Do(sections...)
			if !strings.Contains(got, "# Lockproxy\r\n") || !strings.Contains(got, "lockproxy_embedded:1\r\n") || got[:1] != map[int]string{2: "$", 3: "="}[proto] {
				t.Errorf("%q: %q", sections, got)
			}
		}
		ctx := context.Background()
		c := harness.NewGoRedis(t, &redis.Options{Addr: p.Addr(), Protocol: proto})
		if infos, err := c.Command(ctx).Result(); err != nil || infos["lock"] == nil || infos["get"] == nil {
			t.Errorf("go-redis: %d commands, %v", len(infos), err)
		}
		if keys, err := c.CommandGetKeys(ctx, "LOCK", "a").Result(); err != nil || !slices.Equal(keys, []string{"a"}) {
			t.Errorf("go-redis: COMMAND GETKEYS %v %v", keys, err)
		}
		if list, err := c.CommandList(ctx, nil).Result(); err != nil || !slices.Contains(list, "lock") {
			t.Errorf("go-redis: COMMAND LIST of %d, %v", len(list), err)
		}
		r := newRueidis(t, rueidis.ClientOption{InitAddress: []string{p.Addr()}, DisableCache: true, AlwaysRESP2: proto == 2})
		if entries, err := r.Do(ctx, r.B().Command().Build()).ToArray(); err != nil || len(entries) != len(table) {
			t.Errorf("rueidis: %d commands, %v", len(entries), err)
		}
		if m, err := r.Do(ctx, r.B().CommandDocs().CommandName("lock").Build()).AsMap(); err != nil || len(m) != 1 {
			t.Errorf("rueidis: COMMAND DOCS %v %v", m, err)
		}
		rueidisLibrary(r).lockAndUnlock(t)
		goRedisLibrary(c).lockWithOwner(t)
	})
}
