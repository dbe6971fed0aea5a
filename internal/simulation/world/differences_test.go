package world

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// text is a reply to compare: of bulk strings, statuses, numbers, lists.
func text(reply any) string {
	switch v := reply.(type) {
	case []byte:
		return string(v)
	case []any:
		var all []string
		for _, e := range v {
			all = append(all, text(e))
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return fmt.Sprint(reply)
}

// alike are scripts whose replies are the same on both; they catch their errors.
var alike = []string{
	`return redis.call('PEXPIRE', 'none', 5)`,
	`redis.call('SET', 'k', 'v'); redis.call('PEXPIRE', 'k', -1); return redis.call('EXISTS', 'k')`,
	`return redis.pcall('SET', 'k', 'v', 'PX', 0).err ~= nil and 1 or 0`,
	`redis.call('SET', 'k', 'v', 'PX', 5000); redis.call('SET', 'k', 'w', 'XX', 'KEEPTTL'); return redis.call('PTTL', 'k') > 4900 and 1 or 0`,
	`redis.call('SET', 'k', 'v', 'PX', 5000); redis.call('SET', 'k', 'w'); return redis.call('PTTL', 'k')`,
	`return {redis.call('PTTL', 'none'), redis.call('SET', 'k', 'v'), redis.call('PTTL', 'k')}`,
	`redis.call('SET', 's', 'x'); local r = redis.pcall('HGET', 's', 'f'); return r.err`,
	`redis.call('SET', 's', 'x'); return redis.pcall('HSET', 's', 'f', 1)['err'] ~= nil and 1 or 0`,
	`return redis.pcall('NOSUCH').err ~= nil and 1 or 0`,
	`redis.call('DEL', 'h'); redis.call('HSET', 'h', 'a', 1); return {redis.call('HINCRBY', 'h', 'a', 2), redis.call('HMGET', 'h', 'a', 'b'), redis.call('HDEL', 'h', 'a'), redis.call('EXISTS', 'h')}`,
	`redis.call('DEL', 'l'); redis.call('RPUSH', 'l', 'a', 'b', 'c'); redis.call('LINSERT', 'l', 'BEFORE', 'b', 'x'); return {redis.call('LRANGE', 'l', 0, -1), redis.call('LREM', 'l', 1, 'x'), redis.call('LINDEX', 'l', 0), redis.call('LPOP', 'l'), redis.call('LLEN', 'l')}`,
	`redis.call('DEL', 'z'); redis.call('ZADD', 'z', 1742567890123456, 'm'); return {redis.call('ZSCORE', 'z', 'm'), redis.call('ZCARD', 'z'), redis.call('ZRANGE', 'z', 0, -1)}`,
	`return string.format('%.0f', 1742567890123456 + 1)`,
	`redis.call('SET', 'n', 1742567890123456); return redis.call('GET', 'n')`,
	`return {1.9, -1.9, 'a', true, false, {2, 'b'}, redis.status_reply('FINE')}`,
	`return redis.sha1hex('abc')`,
	`return redis.call('PUBLISH', 'nobody', 'x')`,
	`return {redis.call('TYPE', 'h')['ok'], redis.call('TYPE', 'z')['ok'], redis.call('TYPE', 'none')['ok']}`,
	`return pcall(function() newglobal = 1 end) and 1 or 0`,
}

// unlike are scripts whose replies are not the same, as differences.md says: here, and on Redis.
var unlike = map[string][2]string{
	`local a = redis.call('TIME'); for i = 1, 1000000 do end; local b = redis.call('TIME'); return a[1] == b[1] and a[2] == b[2] and 'stands' or 'goes on'`: {"stands", "goes on"},
}

// What scripts of locks rely on is the same here and in Redis.
func TestLikeRedis(t *testing.T) {
	testredis.NeedsProcesses(t)
	real := testredis.Start(t)
	answers := map[string]string{}
	for _, script := range alike {
		answers[script] = text(real.Do(t, "EVAL", script, 0))
	}
	for script, want := range unlike {
		if got := text(real.Do(t, "EVAL", script, 0)); got != want[1] {
			t.Errorf("%s\nRedis %s, not %s", script, got, want[1])
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := New(1)
		t.Cleanup(w.Close)
		n := w.NewNode(addr)
		for _, script := range alike {
			if got := text(n.Do(t, "EVAL", script, 0)); got != answers[script] {
				t.Errorf("%s\nhere %s\nRedis %s", script, got, answers[script])
			}
		}
		for script, want := range unlike {
			if got := text(n.Do(t, "EVAL", script, 0)); got != want[0] {
				t.Errorf("%s\nhere %s, not %s", script, got, want[0])
			}
		}
	})
}
