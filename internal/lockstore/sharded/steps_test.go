package sharded

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// TestRefusalAfterALostReply: a request whose reply was lost may have been done. That Redis refuses to run it again tells nothing of that, so it is
// sent until a script has run; if none does in time, nobody knows.
func TestRefusalAfterALostReply(t *testing.T) {
	lost := &upstream.LostError{Cause: context.DeadlineExceeded}
	refused := func(words string) error { return &upstream.ReplyError{Line: words} }
	wrongType := refused("WRONGTYPE Operation against a key holding the wrong kind of value") // the script ran, and found this
	const forever = 1000
	for name, c := range map[string]struct {
		err   error // of the second request, and more
		times int
		want  error
	}{
		"loading":           {refused("LOADING Redis is loading the dataset in memory"), 3, nil},
		"a full disk":       {refused("MISCONF Errors writing to the AOF file"), 3, nil},
		"loading for long":  {refused("LOADING Redis is loading the dataset in memory"), forever, lost},
		"no right any more": {refused("NOPERM this user has no permissions"), forever, lost},
		"out of reach":      {&upstream.NotSentError{Cause: context.DeadlineExceeded}, forever, lost},
		"of another type":   {wrongType, forever, wrongType},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := world.New(1)
				t.Cleanup(w.Close)
				const addr = "10.0.0.1:6379"
				w.NewNode(addr)
				ctl := upstream.NewControl(upstream.Target{Network: "tcp", Addr: addr, Dialer: w.Proxy("p")}, upstream.ControlOptions{})
				t.Cleanup(ctl.Close)
				host := hostOf(t, t.Context(), &sync.WaitGroup{})
				one := newSingle(host, ctl)
				sent := 0
				out, err := newStore(one, host).step(t.Context(), 5*time.Second, &request{key: "k",
					build: func(*shard, string) node.Call { return node.Call{Script: &scripts.Script{}} },
					send: func(*shard, node.Call, bool) ([]int64, error) {
						switch sent++; {
						case sent == 1:
							return nil, lost
						case sent <= 1+c.times:
							return nil, c.err
						}
						return []int64{1, 2, 3}, nil
					}})
				if !errors.Is(err, c.want) || err == nil && out[1] != 2 {
					t.Errorf("%v %v after %d", out, err, sent)
				}
			})
		})
	}
}
