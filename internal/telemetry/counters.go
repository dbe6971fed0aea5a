package telemetry

import (
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
)

// cacheLine keeps neighbours' writes from slowing each other down: two lines of
// 64 bytes, because x86 fetches them in pairs.
const cacheLine = 128

// Counter counts events. It only goes up. The zero value is ready; it must not
// be copied.
type Counter struct {
	n atomic.Int64
	_ [cacheLine - 8]byte
}

// Add counts n more events; n must not be negative.
func (c *Counter) Add(n int64) { c.n.Add(n) }

// Value returns the events counted since the process started.
func (c *Counter) Value() int64 { return c.n.Load() }

// Gauge counts what exists now. The zero value is ready; it must not be copied.
type Gauge struct {
	n atomic.Int64
	_ [cacheLine - 8]byte
}

// Add counts n more; n is negative when some have gone.
func (g *Gauge) Add(n int64) { g.n.Add(n) }

// Set replaces the number.
func (g *Gauge) Set(n int64) { g.n.Store(n) }

// Value returns how many there are now.
func (g *Gauge) Value() int64 { return g.n.Load() }

// Counters counts events by one or two words that say of which kind each is: words of our own, few and fixed.
type Counters struct{ kinds labelled[Counter] }

// NewCounters returns one that has counted nothing.
func NewCounters() *Counters {
	return &Counters{labelled[Counter]{make: func(attribute.Set) *Counter { return new(Counter) }}}
}

// Add counts n more events of a kind. It is shown from then on, also if n is 0; second is "" where one word says it.
func (c *Counters) Add(n int64, first, second string) { c.kinds.get(first, second).Add(n) }

// Of returns the events of a kind.
func (c *Counters) Of(first, second string) int64 { return c.kinds.get(first, second).Value() }

// Value returns the events of all kinds.
func (c *Counters) Value() (n int64) {
	c.Read(func(of int64, _ ...string) { n += of })
	return n
}

// Read is how a [Figure] of these is read.
func (c *Counters) Read(show Show) {
	for kind, n := range c.kinds.all() {
		if kind[1] == "" {
			show(n.Value(), kind[0])
		} else {
			show(n.Value(), kind[0], kind[1])
		}
	}
}
