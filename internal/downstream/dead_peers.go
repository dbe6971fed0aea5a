package downstream

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
)

// lifeSign is how long a client may show no sign of life.
const lifeSign = 11 * time.Second

// The kernel sends probes to clients that are idle.
const (
	firstProbe  = 3 * time.Second // up to latestProbe
	latestProbe = 6 * time.Second
	probeEvery  = time.Second
)

// keepAlive has the kernel give up an idle client that has vanished, after lifeSign. A kernel loses probes to clients
// on its own machine when thousands are due at the same tick: so clients that came together are probed in different
// seconds, and one answer to at least five probes keeps a client.
func keepAlive() net.KeepAliveConfig {
	later := rand.IntN(int((latestProbe-firstProbe)/time.Second) + 1) // the kernel counts in seconds
	idle := firstProbe + time.Duration(later)*time.Second
	count := int((lifeSign - idle) / probeEvery)
	return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: probeEvery, Count: count}
}

// Keep-alive does not run while bytes are on their way to a client, and the kernel alone then gives a dead one up after
// a quarter of an hour. TCP_USER_TIMEOUT would be shorter, but also cuts off a living client that does not read for
// that long. So clients that have yet to acknowledge something are looked at: the dead acknowledge nothing, not even a
// probe of their full window.
const (
	lookEvery = time.Second
	lookAfter = 4 * time.Second // whoever has sent a command since is alive
)

// DropDeadPeers drops clients that have vanished without closing their connections, until ctx ends. since appends the
// clients that have something unacknowledged, and have sent no command since before (unix nanoseconds), to its second
// argument.
func DropDeadPeers(ctx context.Context, since func(before int64, to []*Conn) []*Conn) {
	var silent []*Conn
	for retry.Sleep(ctx, lookEvery, nil) {
		silent = since(time.Now().Add(-lookAfter).UnixNano(), silent[:0])
		for _, c := range silent {
			if c.Writer.silentFor() > lifeSign && !c.End.Over() {
				c.dropFor("no sign of life")
			}
		}
		clear(silent)
	}
}
