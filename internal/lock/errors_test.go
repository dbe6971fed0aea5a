package lock

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/upstream"
)

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
		&upstream.ReplyError{Line: "BUSY Redis is busy"}:  true,
		&upstream.ReplyError{Line: "WRONGTYPE Operation"}: false,
		&Error{Code: "LOCKKIND", Text: "x"}:               false,
	} {
		if lockstore.Passing(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}
