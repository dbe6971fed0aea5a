package node

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// TestRefusedNamesAreNotAskedFor: a client whose locks have names that the account may not touch does not have every LOCK wait for a
// question.
func TestRefusedNamesAreNotAskedFor(t *testing.T) {
	var a Account
	a.began, a.next = time.Now(), time.Now().Add(time.Hour)
	a.known.Store(1)
	for _, line := range []string{
		"NOPERM the service account has no permissions to access the 'x' key",
		"NOPERM the service account can't access at least one of the keys mentioned in the command arguments",
		"WRONGTYPE Operation against a key holding the wrong kind of value",
	} {
		if a.Refused(&upstream.ReplyError{Line: line}); !a.Fresh() {
			t.Errorf("%s: it is asked for", line)
		}
	}
	if !a.due(0) {
		t.Error("it is not asked at the next sample of the clock")
	}
	if a.Refused(&upstream.ReplyError{Line: "NOPERM the service account can't run this command or subcommand"}); a.Fresh() {
		t.Error("it is not asked")
	}
}
