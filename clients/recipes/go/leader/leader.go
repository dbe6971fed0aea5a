// Leader is a program of which one replica leads. The others wait, in the order in which they came. When the leader ends, the next one leads at
// once; when its machine vanishes, after the lease. A leader whose lock is lost stops and stands in line again.
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
	locks := goredis.Locks(&redis.Options{Addr: "localhost:6380"})
	for ctx.Err() == nil {
		err := locks.With(ctx, "leader", lead, lockproxy.Fair(), lockproxy.Lease(6*time.Second))
		log.Print("not the leader: ", err)
		time.Sleep(time.Second)
	}
}

func lead(ctx context.Context, held lockproxy.Hold) error {
	log.Print("the leader, with token ", held.Token) // your work
	<-ctx.Done()
	return context.Cause(ctx)
}
