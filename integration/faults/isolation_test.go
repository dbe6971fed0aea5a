package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// offences are what one client may send, a line a command, that must make no difference to any other: what changes or
// holds up a connection, what would shift the replies on one, what other proxies have taken for the cluster's word.
var offences = map[string]string{
	"CLIENT REPLY OFF":       "CLIENT REPLY OFF\nGET x\nGET y",
	"CLIENT REPLY SKIP":      "CLIENT REPLY SKIP\nGET x\nCLIENT REPLY SKIP",
	"MONITOR":                "MONITOR\nPING",
	"MULTI left open":        "MULTI\nSET x 1",
	"MULTI in error":         "MULTI\nNOSUCH\nGET",
	"WATCH":                  "WATCH x nothing",
	"EXEC without MULTI":     "EXEC\nDISCARD\nUNWATCH",
	"SUBSCRIBE":              "SUBSCRIBE a b c",
	"SUBSCRIBE everything":   "PSUBSCRIBE *\nSSUBSCRIBE s",
	"UNSUBSCRIBE":            "UNSUBSCRIBE\nPUNSUBSCRIBE a b\nSUNSUBSCRIBE",
	"blocking":               "BLPOP nowhere 0\nPING",
	"XREAD BLOCK":            "XREAD BLOCK 0 STREAMS nowhere $",
	"WAIT":                   "WAIT 1 0",
	"CLIENT TRACKING":        "HELLO 3\nCLIENT TRACKING ON BCAST",
	"CLIENT CACHING":         "CLIENT CACHING YES\nCLIENT TRACKINGINFO\nCLIENT GETREDIR",
	"a script's MOVED":       "EVAL \"return {err='MOVED 1 127.0.0.1:1'}\" 0",
	"a script's ASK":         "EVAL \"return {err='ASK 1 127.0.0.1:1'}\" 0",
	"a script's NOAUTH":      "EVAL \"return {err='NOAUTH no'}\" 0",
	"a script in RESP3":      "EVAL \"redis.setresp(3) return {map={a=1}}\" 0",
	"SELECT":                 "SELECT 5\nSET x 5",
	"SELECT in MULTI":        "MULTI\nSELECT 5\nEXEC",
	"HELLO 2":                "HELLO 2\nGET nothing",
	"HELLO 3":                "HELLO 3\nGET nothing",
	"HELLO 4":                "HELLO 4\nHELLO 3 AUTH a b\nHELLO x",
	"AUTH":                   "AUTH wrong\nAUTH nobody wrong",
	"RESET":                  "MULTI\nRESET\nSUBSCRIBE a\nRESET",
	"QUIT":                   "MULTI\nQUIT",
	"DEBUG":                  "DEBUG PROTOCOL PUSH\nDEBUG SLEEP 3\nDEBUG SEGFAULT",
	"replication":            "SYNC\nPSYNC ? -1\nREPLCONF ACK 1\nREPLCONF listening-port 1",
	"cluster":                "ASKING\nREADONLY\nREADWRITE",
	"CLIENT subcommands":     "CLIENT SETNAME x\nCLIENT NO-EVICT ON\nCLIENT NO-TOUCH ON\nCLIENT NO-SUCH-THING\nSCRIPT DEBUG YES",
	"garbage":                "*1\n$1000000000000\nx",
	"garbage behind a MULTI": "MULTI\n*-5\n*3\n$3\nSET\n$-7",
	"HTTP":                   "POST / HTTP/1.1\nHost: x",
	"zeros":                  "\x00\x00\x00\x00\x00\x00\x00\x00",
}

// What one client does with its connection, and leaves undone, is seen by nobody else.
func TestIsolation(t *testing.T) {
	server := testredis.Start(t, "--enable-debug-command yes")
	p := harness.StartProxy(t, server.URL(), "--allow", "monitor")
	for name, lines := range offences {
		t.Run(name, func(t *testing.T) {
			watch := watchOver(t, p.Addr())
			var open []*harness.Wire
			for range 3 {
				for _, w := range []*harness.Wire{harness.Dial(t, p.Addr()), harness.Dial3(t, p.Addr())} {
					for line := range strings.SplitSeq(lines, "\n") {
						_, _ = w.C.Write([]byte(line + "\r\n")) // some end the connection
					}
					open = append(open, w)
				}
			}
			time.Sleep(50 * time.Millisecond) // with the connections as they were left
			for i, w := range open {
				if i%2 == 0 {
					w.Close()
				}
			}
			time.Sleep(50 * time.Millisecond)
			watch.finish()
			for _, w := range open {
				w.Close()
			}
		})
	}
}
