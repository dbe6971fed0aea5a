package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
)

// labelled is a T for each combination of the values of one or two labels: words of our own, few and fixed. To find
// one takes no lock: the map is replaced whole when it grows.
type labelled[T any] struct {
	labels [2]string // their names; those that are "" are none
	make   func(attribute.Set) *T
	known  atomic.Pointer[map[[2]string]*T]
	mu     sync.Mutex // growing
}

// all are those that there are by now. Nobody changes the map.
func (l *labelled[T]) all() map[[2]string]*T {
	if known := l.known.Load(); known != nil {
		return *known
	}
	return nil
}

func (l *labelled[T]) get(first, second string) *T {
	if t := l.all()[[2]string{first, second}]; t != nil {
		return t
	}
	return l.grow([2]string{first, second})
}

func (l *labelled[T]) grow(values [2]string) *T {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.all()
	if t := known[values]; t != nil {
		return t
	}
	var kvs []attribute.KeyValue
	for i, name := range l.labels {
		if name != "" {
			kvs = append(kvs, attribute.String(name, values[i]))
		}
	}
	grown := map[[2]string]*T{values: l.make(attribute.NewSet(kvs...))}
	maps.Copy(grown, known)
	l.known.Store(&grown)
	return grown[values]
}
