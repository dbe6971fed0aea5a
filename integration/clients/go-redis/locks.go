package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/push"
)

func locks(r redis.UniversalClient) {
	mine := connect(redis.Options{ReadTimeout: 5 * time.Second}).Conn() // the lock ends with this connection
	defer mine.Close()
	must(mine.Do(ctx, "LOCK", "plain"), "OK")
	fails(mine.Do(ctx, "LOCK", "plain").Err(), "OWNERREQUIRED")
	must(mine.Do(ctx, "LOCK", "plain", "SELF"), "OK")
	must(mine.Do(ctx, "UNLOCK", "plain"), 0)
	must(mine.Do(ctx, "UNLOCK", "plain"), 1)
	fails(mine.Do(ctx, "UNLOCK", "plain").Err(), "NOTHELD")
	ok("lock")

	check(r.Set(ctx, "counter", 0, 0).Err())
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 10 {
				critical(r, "section")
			}
		})
	}
	workers.Wait()
	same(r.Get(ctx, "counter").Val(), 80)
	ok("owner")
}

// critical adds one to a counter in two steps, which only the lock makes safe: the way for pools.
func critical(r redis.UniversalClient, key string) {
	check(withLock(ctx, r, key, 4*time.Second, 30*time.Second, func(held context.Context, _ int64) error {
		n, err := r.Get(held, "counter").Int()
		if err != nil {
			return err
		}
		return r.Set(held, "counter", n+1, 0).Err()
	}))
}

func contention(r redis.UniversalClient) {
	alone := connect(redis.Options{ReadTimeout: 5 * time.Second})
	mine, other := alone.Conn(), alone.Conn()
	defer mine.Close()
	defer other.Close()
	must(mine.Do(ctx, "LOCK", "busy"), "OK")
	must(other.Do(ctx, "LOCK", "busy"), nil)
	time.AfterFunc(300*time.Millisecond, func() { must(mine.Do(ctx, "UNLOCK", "busy"), 1) })
	must(other.Do(ctx, "LOCK", "busy", "BLOCK", 4000), "OK")
	ok("contention")

	// BLOCK shorter than the client's patience: nil. Longer: the client hangs up, and the wait ends with it.
	must(r.Do(ctx, "LOCK", "busy", "OWNER", "late", "EX", "30", "BLOCK", 300), nil)
	hasty := connect(redis.Options{MaxRetries: -1})
	fails(hasty.Do(ctx, "LOCK", "busy", "BLOCK", 60000).Err(), "timeout")
	must(other.Do(ctx, "UNLOCK", "busy"), 1)
	must(r.Do(ctx, "LOCK", "busy", "OWNER", "late", "EX", "30", "BLOCK", 4000), "OK")
	must(r.Do(ctx, "UNLOCK", "busy", "OWNER", "late"), 1)
	ok("block")
}

// heard keeps what the server pushed.
type heard chan []any

func (h heard) HandlePushNotification(_ context.Context, _ push.NotificationHandlerContext, message []any) error {
	h <- message
	return nil
}

// lost: the news of a lost lock arrives while the connection lies idle in the pool; later replies must be the right ones.
func lost() {
	r := connect(redis.Options{ReadTimeout: 5 * time.Second, PoolSize: 1})
	news := make(heard, 1)
	check(r.RegisterPushNotificationHandler("lock-lost", news, false))
	must(r.Do(ctx, "LOCK", "lost"), "OK")
	lose("lost")
	for i := range 20 {
		check(r.Set(ctx, "after", i, 0).Err())
		same(r.Get(ctx, "after").Val(), i)
	}
	fails(r.Do(ctx, "UNLOCK", "lost").Err(), "LOCKLOST")
	// The work hears of it from the next RENEW, and its end says so.
	err := withLock(ctx, connect(redis.Options{ReadTimeout: 5 * time.Second}), "lost", time.Second, 3*time.Second, func(held context.Context, _ int64) error {
		check(held.Err())
		lose("lost")
		<-held.Done()
		fails(context.Cause(held), "NOTHELD")
		return nil
	})
	fails(err, "NOTHELD")
	ok("lost")
	same(<-news, []string{"lock-lost", "lost", "plain", "gone"})
	ok("push")
}
