package locks

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What lock libraries are tested with everywhere.

// Of many names none is left behind: ten thousand in the long form.
func TestManyNamesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	count := 1000
	if harness.Long() {
		count = 10000
	}
	s := testredis.Start(t)
	w := harness.Dial(t, harness.StartProxy(t, s.URL()).Addr())
	began := time.Now()
	for i := range count {
		name := fmt.Sprint("name-", i)
		harness.Expect(t, w, ok, "LOCK", name)
		harness.Expect(t, w, yes, "UNLOCK", name)
	}
	t.Logf("%d locks, %v each with its UNLOCK", count, (time.Since(began) / time.Duration(count)).Round(time.Microsecond))
	if got := harness.Keys(t, s); len(got) != 0 {
		t.Errorf("%d keys are left, %.200q", len(got), got)
	}
}

// atOnce connects n clients through two proxies and has them say the same at the same time; it returns what each got.
func atOnce(t *testing.T, s *testredis.Server, n int, f func(w *harness.Wire) error) []error {
	wires, errs := make([]*harness.Wire, n), make([]error, n)
	for i := range 2 {
		p := harness.StartProxy(t, s.URL())
		p.AwaitProbe(1) // a LOCK that waits for 10 ms would be over before
		for j := i; j < n; j += 2 {
			wires[j] = harness.Dial(t, p.Addr())
		}
	}
	start := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { close(start) })
	harness.Together(n, func(i int) {
		<-start
		errs[i] = f(wires[i])
	})
	return errs
}

func TestOfAThousandAtOnceOneWins(t *testing.T) {
	s := testredis.Start(t)
	var won atomic.Int32
	began := time.Now()
	errs := atOnce(t, s, 1000, func(w *harness.Wire) error {
		got, err := w.Try("LOCK", "k", "BLOCK", "10", "PX", "10000")
		if got == ok {
			won.Add(1)
			return nil
		}
		if err != nil || got != null {
			return errors.Join(err, errReply("LOCK", got))
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	// The winner's lease ends after ten seconds: on a machine that needs longer another may win then.
	if took := time.Since(began); won.Load() < 1 || won.Load() > 1 && took < 10*time.Second {
		t.Errorf("%d of 1000 won in %v", won.Load(), took)
	}
}

// A lease of 5 ms is often over before its UNLOCK comes: that is said then. All get their turn.
func TestOfAHundredWithShortLeasesAllWin(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	var released, lost atomic.Int32
	errs := atOnce(t, s, 100, func(w *harness.Wire) error {
		if got, err := w.Try("LOCK", "k", "BLOCK", "100000", "PX", "5"); got != ok {
			return errors.Join(err, errReply("LOCK", got))
		}
		got, err := w.Try("UNLOCK", "k")
		switch {
		case got == yes:
			released.Add(1)
		case meets(got, rwLost):
			lost.Add(1)
		default:
			return errors.Join(err, errReply("UNLOCK", got))
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	t.Logf("100 with PX 5: %d released, %d ran out before", released.Load(), lost.Load())
	harness.Eventually(t, "nothing is left", func() bool { return len(harness.Keys(t, s)) == 0 })
}

func TestBlockShorterThanTheHolder(t *testing.T) {
	t.Parallel()
	playSteps(t, []rwStep{
		{"a", "PING", pong}, {"b", "PING", pong}, {"2b", "PING", pong},
		{"a", "LOCK k PX 2000", ok}, {"b", "LOCK k BLOCK 1000", null}, {"b", "LOCK k BLOCK 20000 PX 2000", ok}, {"2b", "LOCK k BLOCK 1000", null},
		{"2b", "LOCK k BLOCK 20000", ok},
	})
}
