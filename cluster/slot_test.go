package cluster

import (
	"math/rand/v2"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestSlot(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--cluster-enabled yes")
	c := s.Dial(t)
	keys := []string{"", "a", "123456789", "{", "}", "{}", "{}a", "a{}b", "a{b", "a}b{c", "{a}", "x{a}y", "{a}{b}", "{{a}}", "a{}{b}",
		"0123456789abcdef0123456789", "}{a}", "{a", "a}", "\x00", "{\x00}", "ключ{й}", "{user1000}.following", "foo{{bar}}zap", "foo{bar}{zap}"}
	for range 2000 {
		b := make([]byte, rand.IntN(40))
		for i := range b {
			b[i] = "ab{}\x00\xff"[rand.IntN(6)]
		}
		keys = append(keys, string(b))
	}
	for _, key := range keys {
		if err := c.Send("CLUSTER", "KEYSLOT", key); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		want, err := redis.Int(c.Receive())
		if err != nil {
			t.Fatal(err)
		}
		if got := Slot([]byte(key)); got != want {
			t.Errorf("%q: got %d, want %d", key, got, want)
		}
	}
}
