// Command installed takes and gives back a lock of the proxy at a port, with what has been installed.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
	"github.com/lockproxy/lockproxy/clients/go/goredis"
	_ "github.com/lockproxy/lockproxy/clients/go/rueidislock"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	r := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	locks := goredis.Locks(r.Options())
	err := locks.With(ctx, "installed", func(ctx context.Context, held lockproxy.Hold) error {
		if held.Token == 0 || r.Exists(ctx, "installed").Val() != 1 {
			return errors.New("it is not held")
		}
		return nil
	}, lockproxy.Wait(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	if n, err := r.Exists(ctx, "installed").Result(); n != 0 || err != nil {
		log.Fatal("it was not given back: ", err)
	}
}
