package harness

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// NewGoRedis is a client of go-redis, closed with the test.
func NewGoRedis(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
