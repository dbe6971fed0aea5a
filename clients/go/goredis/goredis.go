// Package goredis takes lockproxy's locks by go-redis.
package goredis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
)

// most is how many critical sections may be at once.
const most = 1 << 16

// Locks returns the locks that are reached as o says: r.Options() of a client, or what a cluster's client has for one
// of its addresses. Their connections are others than those of the program's client.
func Locks(o *redis.Options) *lockproxy.Locks {
	var mu sync.Mutex
	clients := map[time.Duration]*redis.Client{} // by how long an answer may take
	return &lockproxy.Locks{
		Dial: func(answer time.Duration, alone bool) (lockproxy.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			c := clients[answer]
			if c == nil {
				own := *o
				own.ReadTimeout, own.WriteTimeout, own.MaxRetries = answer, answer, -1
				own.PoolSize, own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns = most, 0, 64, 0
				c = redis.NewClient(&own)
				clients[answer] = c
			}
			if alone {
				one := c.Conn()
				return conn{one, one.Close}, nil
			}
			return conn{c, func() error { return nil }}, nil // a named owner's lock is no connection's
		},
		IsReply: func(err error) bool {
			var reply redis.Error
			return errors.As(err, &reply) && !errors.Is(err, redis.Nil)
		},
	}
}

type conn struct {
	client interface {
		Do(ctx context.Context, words ...any) *redis.Cmd
	}
	close func() error
}

// Do implements lockproxy.Conn.
func (c conn) Do(ctx context.Context, words ...any) (any, error) {
	answer, err := c.client.Do(ctx, words...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return answer, err
}

// Close implements lockproxy.Conn. The connection stays for other sections.
func (c conn) Close() { _ = c.close() }
