package session

import (
	"bytes"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// What a client has sent before it closed its connection is run, as by Redis, also when Redis stalls meanwhile.
func TestPipelineOfOneWhoLeft(t *testing.T) {
	t.Parallel()
	const commands = 1000
	server, p := startBoth(t, nil)
	w := dialWire(t, p.addr)
	w.expect(":0\r\n", "DEL", "list")
	server.Stop()
	resumed := time.AfterFunc(3*stuckAfter, server.Cont)
	defer resumed.Stop()
	w.raw(append(resp.AppendCommand(nil, "CLIENT", "REPLY", "OFF"), bytes.Repeat(resp.AppendCommand(nil, "RPUSH", "list", "x"), commands)...))
	w.conn.Close()
	eventually(t, "all of it has been run", func() bool { return server.Do(t, "LLEN", "list").(int64) == commands })
}
