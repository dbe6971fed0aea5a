package lock

import (
	"errors"
	"strings"
	"testing"

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

func TestErrorLinesStayOneLine(t *testing.T) {
	err := notHeld("a\r\n-ERR forged\x00"+strings.Repeat("x", 500), false)
	if text := err.Error(); strings.ContainsAny(text, "\r\n\x00") || len(text) > 200 {
		t.Errorf("%q", text)
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
