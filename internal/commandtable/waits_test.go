package commandtable

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

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
