package lock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// TestNamesAreRedissons has the examples of Redisson's prefixName.
func TestNamesAreRedissons(t *testing.T) {
	for got, want := range map[string]string{
		channelOf("orders"):     "redisson_lock__channel:{orders}",
		channelOf("a{b}c"):      "redisson_lock__channel:a{b}c",
		channelOf("a{b"):        "redisson_lock__channel:a{b",
		tokenKey("orders"):      "redisson_lock_token:{orders}",
		queueKey("orders"):      "redisson_lock_queue:{orders}",
		watchKey("o", "job"):    "lockproxy_watch:{o}:job",
		watchKey("{t}o", "job"): "lockproxy_watch3:{t}o:job",
		watchKey("o}", "job"):   "lockproxy_watch_3:{o}}:job",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestErrorsOfScriptsReadLikeRedis(t *testing.T) {
	const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	for said, want := range map[string]string{
		wrongType + " script: 149c5a8bf18676fd99e9e6e24923bd64d9b62f94, on @user_script:20.": wrongType,
		"Error compiling script (new function): :1: " + wrongType:                            wrongType,
		"unknown command 'x'": "ERR unknown command 'x'",
		"NOPERM this user has no permissions to run the 'evalsha' command": "NOPERM the service account has no permissions to run the 'evalsha' command",
		"ERR the token script: 12":                             "ERR the token",
		"ERR Protocol error: unauthenticated multibulk length": serviceNoAuth,
		"NOAUTH Authentication required.":                      serviceNoAuth,
	} {
		if got := redisLine(said); got != want {
			t.Errorf("%q: got %q", said, got)
		}
	}
}

func TestErrorLinesStayOneLine(t *testing.T) {
	err := notHeld("a\r\n-ERR forged\x00"+strings.Repeat("x", 500), false)
	if text := err.Error(); strings.ContainsAny(text, "\r\n\x00") || len(text) > 200 {
		t.Errorf("%q", text)
	}
}

// TestClockJump: a sample that the round trip does not explain is a jump, of a size that the sample tells.
func TestClockJump(t *testing.T) {
	var c clock
	sent := time.Now()
	if jump, _ := c.set(1e15, sent, 0); jump != 0 {
		t.Fatal("the first sample jumped")
	}
	at, known := c.now()
	if !known || at < 1e15 {
		t.Fatal(at)
	}
	if jump, _ := c.set(at, time.Now(), 0); jump != 0 {
		t.Fatalf("an even clock jumped by %v", jump)
	}
	for _, by := range []time.Duration{10 * time.Second, -10 * time.Second} {
		at, _ = c.now()
		jump, _ := c.set(at+by.Microseconds(), time.Now(), 0)
		if d := jump - by; d.Abs() > time.Second {
			t.Errorf("jumped by %v, noticed %v", by, jump)
		}
	}
}

func TestWhatAWaiterSitsOut(t *testing.T) {
	cause := errors.New("x")
	for err, want := range map[error]bool{
		&upstream.NotSentError{Cause: cause}:              true,
		&upstream.LostError{Cause: cause}:                 true,
		&upstream.ReplyError{Line: "LOADING Redis is"}:    true,
		&upstream.ReplyError{Line: "WRONGTYPE Operation"}: false,
		&Error{"LOCKKIND", "x"}:                           false,
	} {
		if passing(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}
