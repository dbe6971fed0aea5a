package orders

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestOneOwnerAtATime(t *testing.T) {
	r := redis.NewClient(&redis.Options{Addr: address})
	defer r.Close()
	if err := r.Do(t.Context(), "LOCK", "orders", "OWNER", "a", "EX", 30).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Do(t.Context(), "LOCK", "orders", "OWNER", "b", "EX", 30).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a second owner: %v", err)
	}
}
