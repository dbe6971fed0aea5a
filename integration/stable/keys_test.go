package stable

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

var (
	uuid      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	numbered  = regexp.MustCompile(`<uuid>:[0-9]+`)
	bigNumber = regexp.MustCompile(`[0-9]{10,}`)
)

// plain is a text of Redis without what differs from one run to the next.
func plain(text string) string {
	text = uuid.ReplaceAllString(text, "<uuid>")
	text = numbered.ReplaceAllString(text, "<uuid>:<n>")
	return bigNumber.ReplaceAllString(text, "<number>")
}

// kept is what Redis has of locks: keys with their types, members and whether they expire.
func kept(t *testing.T, server *testredis.Server) (lines []string) {
	t.Helper()
	for _, key := range harness.Keys(t, server) {
		kind := server.Do(t, "TYPE", key).(string)
		ask := map[string][]any{"hash": {"HGETALL", key}, "zset": {"ZRANGE", key, "0", "-1", "WITHSCORES"}, "list": {"LRANGE", key, "0", "-1"}, "string": {"GET", key}}[kind]
		reply := server.Do(t, ask...)
		members, err := redis.Strings(reply, nil)
		if err != nil {
			members = []string{fmt.Sprintf("%s", reply)}
		}
		if kind == "hash" || kind == "zset" {
			pairs := []string{}
			for pair := range slices.Chunk(members, 2) {
				pairs = append(pairs, pair[0]+"="+pair[1])
			}
			members = pairs
		}
		for i := range members {
			members[i] = plain(members[i])
		}
		slices.Sort(members)
		ends := ""
		if server.Do(t, "PTTL", key).(int64) > 0 {
			ends = ", expires"
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s%s", kind, plain(key), strings.Join(slices.Compact(members), " "), ends))
	}
	return lines
}

// listened are the channels of a lock that somebody listens to.
func listened(t *testing.T, server *testredis.Server, key string) (lines []string) {
	t.Helper()
	channels, err := redis.Strings(server.Do(t, "PUBSUB", "CHANNELS", "redisson*"+key+"*"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, channel := range channels {
		lines = append(lines, "listens to "+plain(channel))
	}
	return lines
}

// heard are the messages about a lock that were published up to now.
func heard(t *testing.T, server *testredis.Server, listener redis.PubSubConn, key string) (lines []string) {
	t.Helper()
	server.Do(t, "PUBLISH", "over", "")
	for {
		switch m := listener.ReceiveWithTimeout(harness.Patience).(type) {
		case redis.Message:
			if m.Channel == "over" {
				return lines
			}
			if !strings.Contains(m.Channel, key) {
				continue
			}
			lines = append(lines, fmt.Sprintf("says %q to %s", plain(string(m.Data)), plain(m.Channel)))
		case error:
			t.Fatal(m)
		}
	}
}

// TestKeys: the keys that locks have in Redis, and the channels and messages about them, as they are there at the time.
func TestKeys(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	here, there := harness.StartProxy(t, server.URL()), harness.StartProxy(t, server.URL())
	here.AwaitProbe(1)
	there.AwaitProbe(1)
	listener := redis.PubSubConn{Conn: server.Dial(t)}
	if err := listener.PSubscribe("*"); err != nil {
		t.Fatal(err)
	}
	listener.Receive()
	holder := harness.Dial(t, here.Addr())
	var now []string
	for _, c := range []struct{ key, take, give, wait string }{
		{"plain", "LOCK plain", "UNLOCK plain", "LOCK plain BLOCK 0"},
		{"a{tag}", "LOCK a{tag} OWNER job EX 600", "UNLOCK a{tag} OWNER job", "LOCK a{tag} BLOCK 0"},
		{"fair", "LOCK fair FENCE", "UNLOCK fair", "FAIRLOCK fair BLOCK 0"},
		{"read", "RLOCK read", "UNLOCK read", "WLOCK read BLOCK 0"},
		{"write", "WLOCK write", "UNLOCK write", "RLOCK write BLOCK 0"},
		{"limit", "LOCK limit LIMIT 1", "UNLOCK limit", "LOCK limit LIMIT 1 BLOCK 0"},
		{"two", "MULTILOCK 2 one two", "MULTIUNLOCK 2 one two", "LOCK two BLOCK 0"},
	} {
		note := func(what string, lines []string) {
			slices.Sort(lines)
			for _, line := range slices.Compact(lines) {
				now = append(now, what+": "+line)
			}
		}
		server.Do(t, "FLUSHALL")
		holder.Do(strings.Fields(c.take)...)
		note(c.take, kept(t, server))
		waiter := harness.Dial(t, there.Addr())
		waiter.Send(strings.Fields(c.wait)...)
		harness.Eventually(t, "it waits", func() bool {
			all, channels := strings.Join(kept(t, server), " "), len(listened(t, server, c.key))
			return strings.Contains(all, "lockproxy_wake:") && channels == 2 || strings.Contains(all, "lockproxy_fair:") && channels == 1
		})
		note(c.take+", elsewhere "+c.wait, append(kept(t, server), listened(t, server, c.key)...))
		heard(t, server, listener, c.key)
		holder.Do(strings.Fields(c.give)...)
		waiter.Read()
		note(c.give+", elsewhere "+c.wait, heard(t, server, listener, c.key))
		waiter.Do("UNLOCK", c.key)
		note(c.wait+", UNLOCK", heard(t, server, listener, c.key))
		waiter.Close()
	}
	hold(t, "keys", now)
}
