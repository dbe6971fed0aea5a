package session

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// TestUnreadRepliesSlowNobodyElse: while clients hold most of what may be held of replies, another one's pipeline is as few writes to Redis
// as ever.
func TestUnreadRepliesSlowNobodyElse(t *testing.T) {
	const size, idle, n = 16 << 20, 3, 4000
	server, p := startBoth(t, func(o *ServerOptions) { o.MaxReplyMemory = size * (idle + 1) })
	w := dialWire(t, p.addr)
	server.Do(t, "SET", "big", strings.Repeat("x", size))
	for range idle {
		dialWire(t, p.addr).send("GET", "big")
	}
	eventually(t, "the replies are held", func() bool { return telemetry.ReplyBytes.Value() > idle*size*3/4 })
	reads := func() int {
		_, rest, _ := strings.Cut(text(server.Do(t, "INFO", "stats")), "\r\ntotal_reads_processed:")
		digits, _, _ := strings.Cut(rest, "\r\n")
		count, err := strconv.Atoi(digits)
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	before := reads()
	w.raw(bytes.Repeat(resp.AppendCommand(nil, "SET", "k", "v"), n))
	for range n {
		w.want("+OK\r\n")
	}
	if more := reads() - before; more > n/4 {
		t.Errorf("Redis read %d times for %d commands", more, n)
	}
	for _, c := range p.srv.clients.snapshot() {
		if c.client.End.Over() {
			t.Error("a client was closed")
		}
	}
}
