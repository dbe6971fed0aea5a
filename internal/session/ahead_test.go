package session

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// A client may write all of a long pipeline before it reads a reply, whichever way its replies come.
func TestLongPipelineIsWrittenBeforeAnyReplyIsRead(t *testing.T) {
	server := testredis.Start(t)
	const size = 1 << 10
	key, value := strings.Repeat("k", size), strings.Repeat("v", size)
	server.Do(t, "SET", key, value)
	get, reply := resp.AppendCommand(nil, "GET", key), "$1024\r\n"+value+"\r\n"
	for name, c := range map[string]struct {
		before, first string
		megabytes     int
	}{
		"shared":    {megabytes: rounds(64, 24)},
		"dedicated": {before: "CLIENT TRACKING on BCAST PREFIX other\r\n", first: "+OK\r\n", megabytes: 24},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, server.URL(), func(o *ServerOptions) { o.MaxQueryMemory = 256 << 20 })
			w := dialWire(t, p.addr)
			if c.before != "" {
				w.raw([]byte("HELLO 3\r\n"))
				w.frame()
				w.raw([]byte(c.before))
				w.want(c.first)
			}
			n := c.megabytes << 20 / len(get)
			w.conn.SetWriteDeadline(time.Now().Add(patience))
			w.raw(bytes.Repeat(get, n))
			if held := telemetry.QueryBytes.Value(); held == 0 {
				t.Error("nothing has been read ahead")
			}
			w.conn.SetReadDeadline(time.Now().Add(2 * patience))
			got := make([]byte, len(reply))
			for i := range n {
				k := copy(got, w.left)
				w.left = w.left[k:]
				if _, err := io.ReadFull(w.conn, got[k:]); err != nil || string(got) != reply {
					t.Fatalf("reply %d: %v, %.40q", i, err, got)
				}
			}
			w.expect("+PONG\r\n", "PING")
			eventually(t, "all is given back", func() bool { return telemetry.QueryBytes.Value() == 0 })
		})
	}
}
