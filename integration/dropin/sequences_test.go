package dropin

import (
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
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

func (p *pair) mustPlayAlike(t *testing.T, s sequence, proto int) {
	p.direct.Do(t, "FLUSHALL")
	p.behind.Do(t, "FLUSHALL")
	want := s.run(t, p.direct.Addr(), p.direct.Addr(), proto)
	got := s.run(t, p.proxy.Addr(), p.behind.Addr(), proto)
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
