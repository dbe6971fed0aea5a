package main

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
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

// critical adds one to a counter in two steps, which only the lock makes safe: the verbs for pools. clients/go is how programs use them.
func critical(r redis.UniversalClient, key string) {
	owner := uuid.NewString()
	must(r.Do(ctx, "LOCK", key, "OWNER", owner, "EX", 30, "BLOCK", 4000), "OK")
	n, err := r.Get(ctx, "counter").Int()
	check(err)
	check(r.Set(ctx, "counter", n+1, 0).Err())
	must(r.Do(ctx, "UNLOCK", key, "OWNER", owner), 1)
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
	ok("lost")
	same(<-news, []string{"lock-lost", "lost", "plain", "gone"})
	ok("push")
}
