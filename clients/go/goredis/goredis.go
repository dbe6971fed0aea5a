// Package goredis takes lockproxy's locks by go-redis.
package goredis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
)

// most is how many critical sections may be at once.
const most = 1 << 16

// Locks returns the locks that are reached as o says: r.Options() of a client, or what a cluster's client has for one
// of its addresses. Their connections are others than those of the program's client.
func Locks(o *redis.Options) *lockproxy.Locks {
	settings := *o
	// NewClient has filled these in for the client that o is of. The locks need no word of moving servers.
	settings.PushNotificationProcessor = nil
	settings.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	var mu sync.Mutex
	clients := map[time.Duration]*redis.Client{} // by how long an answer may take
	return &lockproxy.Locks{
		Dial: func(answer time.Duration, alone bool) (lockproxy.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			c := clients[answer]
			if c == nil {
				own := settings
				own.ReadTimeout, own.WriteTimeout, own.MaxRetries = answer, answer, -1
				own.PoolSize, own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns = most, 0, 64, 0
				c = redis.NewClient(&own)
				clients[answer] = c
			}
			if alone {
				one := c.Conn()
				return dedicated{conn{one}, one}, nil
			}
			return conn{c}, nil // a named owner's lock is no connection's
		},
		IsReply: func(err error) bool {
			var reply redis.Error
			return errors.As(err, &reply) && !errors.Is(err, redis.Nil)
		},
		Close: func() error {
			mu.Lock()
			defer mu.Unlock()
			var err error
			for _, c := range clients {
				err = errors.Join(err, c.Close())
			}
			clear(clients)
			return err
		},
	}
}

// conn is a client, which chooses the connection, or one connection.
type conn struct {
	client interface {
		Do(ctx context.Context, words ...any) *redis.Cmd
	}
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
func (c conn) Close(bool) {}

// dedicated is a connection for one section alone, from the pool.
type dedicated struct {
	conn
	one *redis.Conn
}

// Close implements lockproxy.Conn.
func (d dedicated) Close(drop bool) {
	if drop { // there is no other way to close it: the pool takes back what it does not know to have ended
		for _, word := range []string{"QUIT", "PING"} {
			_ = d.one.Do(context.Background(), word).Err()
		}
	}
	_ = d.one.Close()
}
