package scripts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

const proxiesKey = "lockproxy_proxies"

// say has a proxy say that it is there for ten seconds, or goes, among four at most.
func say(t *testing.T, s *testredis.Server, id string, ms int) string {
	t.Helper()
	return run(t, s, scripts.Proxies, []string{proxiesKey}, id, ms, "I am "+id, 4)
}

// Who says that it is there is there until its time is over, or it goes.
func TestProxiesAreThere(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	if got := say(t, s, "a", 10000); got != "[1 a 10000 I am a]" {
		t.Fatal(got)
	}
	if got := say(t, s, "b", 10000); !strings.Contains(got, "I am a") || !strings.Contains(got, "b 10000 I am b") {
		t.Fatal(got)
	}
	want(t, say(t, s, "b", 0), "[1]")
	now := time.Now().UnixMilli()
	for id, value := range map[string]any{"over": "1 x", "later": "99999999999999 x", "none": "x", "": "", "old": now - 1} {
		s.Do(t, "HSET", proxiesKey, id, value)
		got := say(t, s, "a", 10000)
		want(t, got, "[1 a 10000 I am a]")
	}
	if n := s.Do(t, "HLEN", proxiesKey); n != int64(1) {
		t.Errorf("%d fields are kept", n)
	}
	if left := s.Do(t, "PTTL", proxiesKey).(int64); left < 1 || left > 10000 {
		t.Errorf("it stays for %d ms", left)
	}
}

// What others write there is not read if it is large, and ends.
func TestProxiesAmongOthers(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	for name, write := range map[string][]any{
		"fields": {"HSET", proxiesKey, 1, 1, 2, 2, 3, 3, 4, 4}, "bytes": {"HSET", proxiesKey, "x", strings.Repeat("x", 8192)},
		"text": {"SET", proxiesKey, "x"}, "list": {"RPUSH", proxiesKey, "x"},
	} {
		s.Do(t, "DEL", proxiesKey)
		s.Do(t, write...)
		if got := say(t, s, "a", 10000); got != "[0]" {
			t.Errorf("%s: %s", name, got)
		}
		s.Do(t, "PEXPIRE", proxiesKey, 5000)
		if got := say(t, s, "a", 10000); got != "[0]" || s.Do(t, "PTTL", proxiesKey).(int64) > 5000 {
			t.Errorf("%s stays: %s", name, got)
		}
		s.Do(t, "PEXPIRE", proxiesKey, 5_000_000)
		if got := say(t, s, "a", 10000); got != "[0]" || s.Do(t, "PTTL", proxiesKey).(int64) > 10000 {
			t.Errorf("%s stays as long as who wrote it likes: %s", name, got)
		}
	}
}
