package session

import (
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// What this proxy makes itself of Redis' replies, or of what it knows, counts for the bound of replies as those do.
func TestMemoryOfAnswersIsBounded(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.MaxReplyMemory = 8 << 20 })
	other := dialWire(t, p.addr)
	for _, words := range [][]string{
		append([]string{"COMMAND", "INFO"}, slices.Repeat([]string{"get"}, 40_000)...),
		append([]string{"COMMAND", "INFO"}, slices.Repeat([]string{"lock"}, 40_000)...),
		append([]string{"COMMAND", "DOCS"}, slices.Repeat([]string{"xgroup"}, 4_000)...),
		append([]string{"CLIENT", "LIST", "ID"}, slices.Repeat([]string{p.idOf(other)}, 40_000)...),
	} {
		w := dialWire(t, p.addr)
		w.raw(resp.AppendCommand(nil, words...))
		if got := w.frame(); got != "<end>" {
			t.Errorf("%s of many is answered with %d bytes", words[:2], len(got))
		}
		eventually(t, "nothing counts any more", func() bool { return telemetry.ReplyBytes.Value() == 0 })
		other.expect("+PONG\r\n", "PING")
	}
}
