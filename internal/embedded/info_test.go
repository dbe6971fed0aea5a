package embedded

import (
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
)

func TestInfo(t *testing.T) {
	t.Parallel()
	c := dialEmbedded(t)
	info := func(sections ...any) string {
		t.Helper()
		text, err := redis.String(c.Do("INFO", sections...))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	hello, err := redis.Values(c.Do("HELLO", "2"))
	if err != nil {
		t.Fatal(err)
	}
	told, err := redis.String(hello[3], nil)
	if err != nil || told != version {
		t.Errorf("HELLO says version %q, INFO %q, %v", told, version, err)
	}
	for _, sections := range [][]any{{}, {"ALL"}, {"default"}, {"Server", "memory", "replication"}} {
		for _, want := range []string{
			"# Server\r\nredis_version:" + version + "\r\n", "\r\nmaxmemory_policy:noeviction\r\n", "\r\nrole:master\r\n",
		} {
			if got := info(sections...); !strings.Contains(got, want) {
				t.Errorf("INFO %v has no %q: %q", sections, want, got)
			}
		}
	}
	got := info("memory")
	if !strings.HasPrefix(got, "# Memory\r\nused_memory:") || strings.Contains(got, "redis_version") {
		t.Errorf("INFO memory: %q", got)
	}
	if got := info("nosuch"); got != "" {
		t.Errorf("INFO nosuch: %q", got)
	}
	// It is queued in a transaction, and answered within a script.
	for _, command := range []string{"MULTI", "INFO"} {
		if _, err := c.Do(command); err != nil {
			t.Fatal(err)
		}
	}
	replies, err := redis.Strings(c.Do("EXEC"))
	if err != nil || len(replies) != 1 || !strings.HasPrefix(replies[0], "# Server\r\n") {
		t.Errorf("EXEC: %q, %v", replies, err)
	}
	got, err = redis.String(c.Do("EVAL", "return redis.call('INFO', 'replication')", 0))
	if err != nil || !strings.HasPrefix(got, "# Replication\r\n") {
		t.Errorf("in a script: %q, %v", got, err)
	}
}
