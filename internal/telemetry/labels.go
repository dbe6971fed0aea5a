package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// labels are one combination of attribute values as the instruments take them;
// handing over the ready slices keeps a call from allocating its own.
type labels struct {
	add []metric.AddOption
}

// labelCache builds the labels of one or two attributes once per combination of
// values. Reading takes no lock: the map is replaced whole when it grows.
type labelCache struct {
	first, second string // attribute names; second may be ""
	known         atomic.Pointer[map[[2]string]*labels]
	mu            sync.Mutex // growing
}

func newLabelCache(first, second string) *labelCache {
	c := &labelCache{first: first, second: second}
	c.known.Store(&map[[2]string]*labels{})
	return c
}

func (c *labelCache) get(first, second string) *labels {
	if l := (*c.known.Load())[[2]string{first, second}]; l != nil {
		return l
	}
	return c.grow(first, second)
}

func (c *labelCache) grow(first, second string) *labels {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := *c.known.Load()
	key := [2]string{first, second}
	if l := known[key]; l != nil {
		return l
	}
	kvs := []attribute.KeyValue{attribute.String(c.first, first)}
	if c.second != "" {
		kvs = append(kvs, attribute.String(c.second, second))
	}
	option := metric.WithAttributeSet(attribute.NewSet(kvs...))
	l := &labels{add: []metric.AddOption{option}}
	grown := maps.Clone(known)
	grown[key] = l
	c.known.Store(&grown)
	return l
}
