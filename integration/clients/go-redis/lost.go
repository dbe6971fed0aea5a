package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// whileLost is the program while Redis is lost: each line of the input is something to do, and "did ..." says what the application got.
func whileLost() {
	r := redis.NewClient(&redis.Options{Addr: os.Getenv("LOCKPROXY_ADDR")})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		op, item, _ := strings.Cut(lines.Text(), " ")
		if err := doLost(r, op, item); err != nil && err != redis.Nil {
			fmt.Printf("did %T %v\n", err, err)
		} else {
			fmt.Println("did ok")
		}
	}
}

func doLost(r *redis.Client, op, item string) error {
	both := func(p redis.Pipeliner) error {
		p.RPush(ctx, "list", item)
		p.Get(ctx, "k")
		_, err := p.Exec(ctx)
		return err
	}
	switch op {
	case "ready":
		for r.Ping(ctx).Err() != nil {
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	case "get":
		return r.Get(ctx, "k").Err()
	case "push":
		return r.RPush(ctx, "list", item).Err()
	case "pipeline":
		return both(r.Pipeline())
	case "multi":
		return both(r.TxPipeline())
	case "blpop":
		return r.BLPop(ctx, 0, "queue").Err()
	}
	s := r.Subscribe(ctx, "news")
	defer s.Close()
	if _, err := s.Receive(ctx); err != nil {
		return err
	}
	fmt.Println("heard")
	for m := range s.Channel() {
		if m.Payload == "last" {
			return nil
		}
	}
	return fmt.Errorf("the channel was closed")
}
