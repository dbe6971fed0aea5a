package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// TestSilentRedisAsksNobodyToStay: before Redis has said what it can do, a LOCK ends with its client and with its BLOCK, far before
// the time for an answer is over.
func TestSilentRedisAsksNobodyToStay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		s.Stop()
		m := bubbleEngine(t, w, s, "one", Options{})
		first, _ := client(m)
		second, _ := client(m)
		third, _ := client(m)
		began := time.Now()
		ctx, gone := context.WithCancel(t.Context())
		left := make(chan error, 2)
		for _, c := range []*Client{first, second} {
			go func() {
				_, err := c.Lock(ctx, Request{Key: "k", Blocks: true})
				left <- err
			}()
		}
		_, err := third.Lock(t.Context(), Request{Key: "k", Blocks: true, Block: 50})
		if !errors.Is(err, errUntold) || !isNotSent(err) {
			t.Error(err)
		}
		gone()
		for range 2 {
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("they stayed for %v", took)
		}
		s.Cont()
		granted(t, locking(third, Request{Key: "k", Blocks: true}), "when Redis is back")
	})
}

// TestWithdrawnRightIsKnownBeforeTheNextLock: a script that Redis refuses for want of a right has the next LOCK ask first.
func TestWithdrawnRightIsKnownBeforeTheNextLock(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "svc", "on", ">pw", "~*", "&*", "+@all")
	ctl := upstream.NewControl(upstream.Target{Network: "tcp", Addr: s.Addr(), User: "svc", Password: "pw"}, upstream.ControlOptions{Logger: testLog()})
	m := atWork(t, New(ctl, Options{Logger: testLog()}), ctl.Close)
	a, _ := client(m)
	for _, right := range []string{"publish", "del"} {
		mustLock(t, a, Request{Key: "k"})
		s.Do(t, "ACL", "SETUSER", "svc", "-"+right)
		if _, err := a.Unlock(t.Context(), UnlockRequest{Key: "k"}); err == nil {
			t.Fatal("it was given back without", right)
		}
		if _, err := a.Lock(t.Context(), Request{Key: "other"}); !isCode(err, "NOPERM") || s.Do(t, "EXISTS", "other").(int64) != 0 {
			t.Errorf("without %s: %v", right, err)
		}
		s.Do(t, "ACL", "SETUSER", "svc", "+"+right)
		eventually(t, 30*time.Second, "allowed", func() bool { _, err := m.store.admit(t.Context(), Request{Key: "k"}); return err == nil })
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	}
}

// TestRefusedNamesAreNotAskedFor: a client whose locks have names that the account may not touch does not have every LOCK wait for a
// question.
func TestRefusedNamesAreNotAskedFor(t *testing.T) {
	var a account
	a.began, a.next = time.Now(), time.Now().Add(time.Hour)
	a.known.Store(1)
	for _, line := range []string{
		"NOPERM the service account has no permissions to access the 'x' key",
		"NOPERM the service account can't access at least one of the keys mentioned in the command arguments",
		"WRONGTYPE Operation against a key holding the wrong kind of value",
	} {
		if a.refused(&upstream.ReplyError{Line: line}); !a.fresh() {
			t.Errorf("%s: it is asked for", line)
		}
	}
	if !a.due(0) {
		t.Error("it is not asked at the next sample of the clock")
	}
	if a.refused(&upstream.ReplyError{Line: "NOPERM the service account can't run this command or subcommand"}); a.fresh() {
		t.Error("it is not asked")
	}
}
