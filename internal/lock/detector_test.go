//go:build race

package lock

import "runtime"

// The race detector breaks its own state now and then, in SIGSEGV or "ThreadSanitizer: CHECK failed", where two processors work in a bubble
// (go1.26.8): who finds a timer's channel due runs the timer in the bubble's one race context, which another may be running timers in. Few
// packages have so many bubbles. What is read and written without order is found on one processor, too.
func init() { runtime.GOMAXPROCS(1) }
