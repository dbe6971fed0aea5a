package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

func types(r redis.UniversalClient) {
	check(r.Set(ctx, "greeting", "hello", time.Minute).Err())
	same(r.Get(ctx, "greeting").Val(), "hello")
	if err := r.Get(ctx, "nothing").Err(); !errors.Is(err, redis.Nil) {
		log.Panic(err)
	}
	same(r.IncrBy(ctx, "n", 42).Val(), 42)
	ok("strings")

	same(r.HSet(ctx, "user", "name", "Ada", "born", 1815).Val(), 2)
	same(r.HGetAll(ctx, "user").Val(), map[string]string{"name": "Ada", "born": "1815"})
	ok("hashes")

	replies, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range 1000 {
			pipe.Set(ctx, fmt.Sprint("p:", i), i, 0)
			pipe.Get(ctx, fmt.Sprint("p:", i))
		}
		return nil
	})
	check(err)
	same(replies[1999].(*redis.StringCmd).Val(), 999)
	ok("pipeline")
}

func transactions(r redis.UniversalClient) {
	all, err := r.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Set(ctx, "a", 1, 0)
		tx.Incr(ctx, "a")
		return nil
	})
	check(err)
	same(all[1].(*redis.IntCmd).Val(), 2)
	ok("transaction")

	err = r.Watch(ctx, func(tx *redis.Tx) error {
		check(r.Set(ctx, "a", "changed by another", 0).Err())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Set(ctx, "a", "lost update", 0).Err() })
		return err
	}, "a")
	if !errors.Is(err, redis.TxFailedErr) {
		log.Panic(err)
	}
	same(r.Get(ctx, "a").Val(), "changed by another")
	ok("watch")
}

func waiting(r redis.UniversalClient) {
	listener := r.Subscribe(ctx, "news")
	_, err := listener.Receive(ctx) // the confirmation
	check(err)
	hearers, err := r.Publish(ctx, "news", "extra").Result()
	check(err)
	if os.Getenv("LOCKPROXY_NODES") == "" { // of several nodes one counts its own
		same(hearers, 1)
	}
	message, err := listener.ReceiveMessage(ctx)
	check(err)
	same(message.Payload, "extra")
	check(listener.Unsubscribe(ctx, "news"))
	confirmed, err := listener.Receive(ctx)
	check(err)
	same(confirmed.(*redis.Subscription).Count, 0)
	check(listener.Close())
	same(r.Get(ctx, "greeting").Val(), "hello")
	ok("pubsub")

	if inCluster {
		sharded(r)
	}

	if err := r.BLPop(ctx, time.Second, "queue").Err(); !errors.Is(err, redis.Nil) {
		log.Panic(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { check(r.RPush(ctx, "queue", "job").Err()) })
	same(r.BLPop(ctx, 4*time.Second, "queue").Val(), []string{"queue", "job"})
	ok("blocking")
}

func sharded(r redis.UniversalClient) {
	listener := r.SSubscribe(ctx, "shard")
	_, err := listener.Receive(ctx) // the confirmation
	check(err)
	same(r.SPublish(ctx, "shard", "extra").Val(), 1)
	message, err := listener.ReceiveMessage(ctx)
	check(err)
	same(message.Payload, "extra")
	check(listener.Close())
	ok("sharded")
}

func scripts(r redis.UniversalClient) {
	same(r.Eval(ctx, "return {KEYS[1], ARGV[1]}", []string{"k"}, "v").Val(), []string{"k", "v"})
	double := redis.NewScript("return tonumber(ARGV[1]) * 2") // Run: EVALSHA; after NOSCRIPT: EVAL
	same(double.Run(ctx, r, nil, 21).Val(), 42)
	check(r.ScriptFlush(ctx).Err())
	same(double.Run(ctx, r, nil, 4).Val(), 8)
	ok("scripts")
}
