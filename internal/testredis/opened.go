package testredis

import (
	"testing"
	"time"
)

// Opened is what open returns once it does not fail: on a busy machine a server may be too late for the first tries.
func Opened[T any](t testing.TB, open func() (T, error)) T {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		v, err := open()
		if err == nil {
			return v
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
