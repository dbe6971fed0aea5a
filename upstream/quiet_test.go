package upstream

import (
	"math"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// What counts for a time-out is how long Redis has sent nothing, and not how long a whole run takes, on a shared pipe, too.
func TestQuietOfARun(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := open(t, newNode(t, targetOf(t, server), NodeOptions{}), Identity{Proto: 2})
	r := &Request{Cmds: [][]byte{resp.AppendCommand(nil, "PING"), resp.AppendCommand(nil, "BLPOP", "list", "0")}, Sink: new(sinkText)}
	over := make(chan error)
	go func() { over <- p.Do(r) }()
	waitFor(t, "one reply has come", func() bool { return r.Quiet() < math.MaxInt64 })
	before := r.Quiet()
	waitFor(t, "Redis sends nothing more", func() bool { return r.Quiet() > before })
	server.Do(t, "RPUSH", "list", "x")
	if err := <-over; err != nil {
		t.Error(err)
	}
}
