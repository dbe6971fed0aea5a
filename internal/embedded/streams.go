package embedded

import (
	"bufio"
	"bytes"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// goneLook is how often it is looked whether a client that waits for a stream has gone.
const goneLook = 100 * time.Millisecond

// readStreams answers XREAD and XREADGROUP in RESP3, where the reply is a map. miniredis has it as an array, as in
// RESP2. In a transaction it is that.
func (s *Store) readStreams(p *server.Peer, cmd string, args []string) {
	var out bytes.Buffer
	inner := server.NewPeer(bufio.NewWriter(&out))
	inner.Ctx = p.Ctx
	done, watched := make(chan struct{}), make(chan struct{})
	go closeWith(p, inner, done, watched)
	s.redis.Server().Dispatch(inner, slices.Concat([]string{cmd}, args))
	close(done)
	<-watched
	p.Ctx = inner.Ctx
	inner.Flush()
	p.WriteRaw(string(streamsAsMap(out.Bytes())))
}

// closeWith closes inner when p is closed, which ends its wait, until done; then it closes watched. readStreams starts
// it, and waits for it.
func closeWith(p, inner *server.Peer, done <-chan struct{}, watched chan<- struct{}) {
	defer close(watched)
	look := time.NewTicker(goneLook)
	defer look.Stop()
	for {
		select {
		case <-done:
			return
		case <-look.C:
			if p.Closed() {
				inner.Close()
			}
		}
	}
}

// streamsAsMap is a reply to XREAD, an array of streams with their entries, as a map.
func streamsAsMap(reply []byte) []byte {
	n, _, list := resp.Open(reply)
	switch {
	case !list:
		return reply
	case n < 0:
		return resp.AppendNull(nil, 3)
	}
	out := resp.AppendMap(nil, 3, n)
	for stream := range resp.Elements(reply) {
		_, pair, _ := resp.Open(stream)
		out = append(out, pair...)
	}
	return out
}
