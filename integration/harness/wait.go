package harness

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// Patience bounds every wait for something that must happen: wide, because the machine may be busy.
const Patience = time.Minute

// Eventually waits until ok says true; what names it in the failure. What takes long is asked for less often, since asking is work for
// the lockproxy and the Redis that are asked.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); {
		waited := time.Since(began)
		if waited > Patience {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(min(max(waited/16, 2*time.Millisecond), 25*time.Millisecond))
	}
}

// Together runs f(0) … f(n-1) side by side and waits for all; f must not call t.Fatal.
func Together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func Protocols(t *testing.T, f func(t *testing.T, proto int)) {
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", proto), func(t *testing.T) { f(t, proto) })
	}
}

// Long says whether tests that take minutes, or ten thousand connections, are wanted.
func Long() bool { return os.Getenv("TESTS_LONG") == "1" }

// Bound is d where the machine has nothing else to do, which only the long forms have for themselves; elsewhere what took longer may
// have waited for a processor.
func Bound(d time.Duration) time.Duration {
	if Long() {
		return d
	}
	return d + 20*time.Second
}

// Busy is by how much a lockproxy, or a test, may be late because the machine has other things to do; the long forms have it for
// themselves.
func Busy() time.Duration {
	if Long() {
		return 0
	}
	return time.Second
}

// Breath is d, for which a client that would otherwise call as fast as it can leaves the processors to other tests after each call; the
// long forms have the machine for themselves.
func Breath(d time.Duration) time.Duration {
	if Long() {
		return 0
	}
	return d
}
