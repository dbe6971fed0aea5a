// Reindex is a job that takes longer than its lease: the package renews the lock for as long as the job runs. When the program dies, the lock
// is free after the lease at the latest; when it is told to stop, at once.
package main

import (
	"context"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
	"github.com/lockproxy/lockproxy/clients/go/goredis"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r := redis.NewClient(&redis.Options{Addr: "localhost:6380"})
	err := goredis.Locks(r.Options()).With(ctx, "reindex", func(ctx context.Context, _ lockproxy.Hold) error {
		for page := range 100 {
			time.Sleep(50 * time.Millisecond) // your work
			if ctx.Err() != nil {
				return context.Cause(ctx) // the lock is lost, or the program is to stop
			}
			r.Set(ctx, "reindexed", page+1, 0)
		}
		return nil
	}, lockproxy.Lease(3*time.Second))
	if err != nil {
		log.Fatal(err)
	}
}
