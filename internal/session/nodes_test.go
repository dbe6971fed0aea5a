package session

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
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
		args := words(c.line)
		got := timeLeft(&commandtable.Command{Name: strings.ToLower(string(args[0]))}, args, c.passed)
		if want := resp.AppendCommand(nil, strings.Fields(c.want)...); string(got) != string(want) {
			t.Errorf("%s after %v: %q", c.line, c.passed, got)
		}
	}
}

// Only what Redis says of slots, and with nothing run, is sent again.
func TestIsRedirect(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]bool{
		"-MOVED 1 a:1\r\n": true, "-ASK 1 a:1\r\n": true, "-TRYAGAIN x\r\n": true, "-CLUSTERDOWN x\r\n": true,
		"-CROSSSLOT x\r\n": false, "+MOVED 1 a:1\r\n": false, "$6\r\n-MOVED\r\n": false, "-ERR MOVED \r\n": false, "-ASKING\r\n": false,
	} {
		if got := dedicated.IsRedirect([]byte(reply)); got != want {
			t.Errorf("%q: %v", reply, got)
		}
	}
}
