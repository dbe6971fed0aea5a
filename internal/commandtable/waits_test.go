package commandtable

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// A command that waits and is sent again waits for the time left, and never for ever if it was not to.
func TestTimeLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line   string
		passed time.Duration
		want   string
	}{
		{"BLPOP a b 5", 2 * time.Second, "BLPOP a b 3.000"},
		{"BLPOP a 0", time.Hour, "BLPOP a 0"},
		{"BLMOVE a b LEFT RIGHT 1.5", 500 * time.Millisecond, "BLMOVE a b LEFT RIGHT 1.000"},
		{"BZMPOP 2 1 a MIN", 3 * time.Second, "BZMPOP 0.001 1 a MIN"},
		{"XREAD COUNT 1 BLOCK 5000 STREAMS a $", time.Second, "XREAD COUNT 1 BLOCK 4000 STREAMS a $"},
		{"XREADGROUP GROUP g c BLOCK 0 STREAMS a >", time.Second, "XREADGROUP GROUP g c BLOCK 0 STREAMS a >"},
		{"XREAD BLOCK 10 STREAMS a 0", time.Minute, "XREAD BLOCK 1 STREAMS a 0"},
		{"BLPOP a soon", time.Second, "BLPOP a soon"},
	} {
		args := bytes.Fields([]byte(c.line))
		got := (&Command{Name: strings.ToLower(string(args[0]))}).TimeLeft(args, c.passed)
		if want := resp.AppendCommand(nil, strings.Fields(c.want)...); string(got) != string(want) {
			t.Errorf("%s after %v: %q", c.line, c.passed, got)
		}
	}
}

func TestWaitsFor(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]time.Duration{
		"BLPOP a b 1.5": 1500 * time.Millisecond, "BLPOP a 0": 0, "BLPOP a -1": 0, "BLPOP a nan": 0, "BLPOP a inf": 0, "BLPOP a soon": 0, "BLPOP": 0,
		"BLMPOP 2 1 a LEFT": 2 * time.Second, "BLMPOP": 0, "XREAD BLOCK 5 STREAMS a 0": 5 * time.Millisecond, "XREAD STREAMS a 0": 0, "XREAD BLOCK": 0,
		"WAIT 1 100": 100 * time.Millisecond, "WAIT 1": 0, "WAITAOF 1 1 100": 100 * time.Millisecond, "GET 5": 0,
	} {
		args := bytes.Fields([]byte(line))
		if got := (&Command{Name: strings.ToLower(string(args[0]))}).WaitsFor(args); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}
