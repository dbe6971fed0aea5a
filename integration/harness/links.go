package harness

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Links are one lockproxy's ways to the servers of a cluster, in their order.
type Links []*testredis.Proxy

// Freeze has nothing arrive any more, without an error; new connections are as deaf.
func (all Links) Freeze() {
	for _, l := range all {
		l.Latency(time.Hour)
	}
}

// Thaw has everything arrive that was on its way, as after a partition that TCP outlives.
func (all Links) Thaw() {
	for _, l := range all {
		l.Clear()
	}
}

// Each does the same to all.
func (all Links) Each(f func(*testredis.Proxy)) {
	for _, l := range all {
		f(l)
	}
}
