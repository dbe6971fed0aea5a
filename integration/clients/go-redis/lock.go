package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// errNotRenewed is the cause with which work is cancelled when no renewal was confirmed in time.
var errNotRenewed = errors.New("the lock was not renewed in time")

// withLock holds the lock while work runs. The context of work is cancelled when the lock is lost. redis.Nil: somebody else had it
// for wait, which is to be below the client's ReadTimeout.
func withLock(ctx context.Context, r redis.UniversalClient, name string, wait, lease time.Duration,
	work func(ctx context.Context, token int64) error,
) (err error) {
	owner := uuid.NewString()
	sent := time.Now()
	token, err := r.Do(ctx, "LOCK", name, "OWNER", owner, "PX", lease.Milliseconds(), "BLOCK", wait.Milliseconds(), "FENCE").Int64()
	if err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	held, lose := context.WithCancelCause(ctx)
	// From before LOCK was sent: never later than Redis has it.
	expiry := time.AfterFunc(time.Until(sent.Add(lease)), func() { lose(errNotRenewed) })
	ended := make(chan struct{})
	go renewLock(held, r, name, owner, lease, expiry, lose, ended)
	defer func() {
		lose(nil)
		<-ended
		expiry.Stop()
		var broken net.Error
		if errors.As(err, &broken) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return // a write may still be on its way: the lock is left to expire
		}
		// NOTHELD: it was lost meanwhile.
		err = errors.Join(err, r.Do(context.WithoutCancel(ctx), "UNLOCK", name, "OWNER", owner).Err())
	}()
	return work(held, token)
}

// renewLock renews the lock until held ends, or it is lost. It closes ended then.
func renewLock(held context.Context, r redis.UniversalClient, name, owner string, lease time.Duration,
	expiry *time.Timer, lose context.CancelCauseFunc, ended chan<- struct{},
) {
	defer close(ended)
	beat := time.NewTicker(lease / 3)
	defer beat.Stop()
	for {
		select {
		case <-held.Done():
			return
		case <-beat.C:
		}
		sent := time.Now()
		err := r.Do(held, "RENEW", name, "OWNER", owner, "PX", lease.Milliseconds()).Err()
		var reply redis.Error
		switch {
		case err == nil:
			expiry.Reset(time.Until(sent.Add(lease)))
		case errors.As(err, &reply): // NOTHELD
			lose(err)
			return
		} // no answer: the lease has two more thirds
	}
}
