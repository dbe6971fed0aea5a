package dropin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestDropinSequences plays every sequence against a Redis and against another through the proxy.
func TestDropinSequences(t *testing.T) {
	t.Parallel()
	groups := []struct {
		name string
		all  []sequence
	}{
		{"plain", plainSequences},
		{"transactions", transactions},
		{"subscriptions", subscriptions},
		{"blocking", blocking},
		{"tracking", tracking},
		{"states", states},
	}
	harness.Protocols(t, func(t *testing.T, proto int) {
		p := startPair(t)
		for _, group := range groups {
			played := 0
			for _, s := range group.all {
				if s.proto != 0 && s.proto != proto {
					continue
				}
				played++
				t.Run(group.name+"/"+s.name, func(t *testing.T) { p.mustPlayAlike(t, s, proto) })
			}
			t.Logf("%s: %d sequences", group.name, played)
		}
	})
}

// unavailable is what a client hears when the proxy could not connect to Redis.
const unavailable = "-ERR upstream unavailable"

// tries is how often something is said to a proxy whose Redis may have been stopped for longer than a connection to it may take.
const tries = 3

// cutOff says whether the proxy hung up, or could not connect to Redis, where Redis itself answered.
func cutOff(want, got map[string][]string) bool {
	for name, frames := range got {
		for _, sign := range []string{hungUp, unavailable} {
			says := func(frame string) bool { return strings.Contains(frame, sign) }
			if slices.ContainsFunc(frames, says) && !slices.ContainsFunc(want[name], says) {
				return true
			}
		}
	}
	return false
}

// playAlike is what a sequence hears from each of both, on servers without data, scripts and subscribers.
func (p *pair) playAlike(t *testing.T, s sequence, proto int) (want, got map[string][]string) {
	for try := 1; ; try++ {
		for _, server := range []*testredis.Server{p.direct, p.behind} {
			server.Do(t, "FLUSHALL")
			server.Do(t, "SCRIPT", "FLUSH")
			harness.Eventually(t, "those subscribed before are gone", func() bool {
				channels, _ := redis.Strings(server.Do(t, "PUBSUB", "CHANNELS"), nil)
				ours := func(c string) bool { return strings.HasPrefix(c, "lockproxy:") }
				return fmt.Sprint(slices.DeleteFunc(channels, ours), server.Do(t, "PUBSUB", "NUMPAT")) == "[] 0"
			})
		}
		want = s.run(t, p.direct.Addr(), p.direct.Addr(), proto)
		got = s.run(t, p.proxy.Addr(), p.behind.Addr(), proto)
		if try == tries || !cutOff(want, got) {
			return want, got
		}
		t.Logf("said again, since the proxy was cut off from Redis: %q", got)
	}
}

func (p *pair) mustPlayAlike(t *testing.T, s sequence, proto int) {
	want, got := p.playAlike(t, s, proto)
	for name, frames := range want {
		if slices.Contains(frames, nothing) || slices.Contains(frames, stillOpen) {
			t.Errorf("Redis itself leaves %s waiting: %q", name, frames)
		}
		if difference := compare(name, frames, got[name]); difference != "" {
			t.Error(difference)
		}
	}
	for name := range got {
		if want[name] == nil {
			t.Errorf("connection %s heard %q", name, got[name])
		}
	}
	if t.Failed() {
		t.Logf("the sequence:%s", s.steps)
	}
}
