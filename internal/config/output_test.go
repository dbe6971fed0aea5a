package config

import (
	"testing"
	"time"
)

func TestOutputLimits(t *testing.T) {
	pubsub := OutputLimit{32 << 20, 8 << 20, time.Minute}
	for name, c := range map[string]struct {
		args           []string
		normal, pubsub OutputLimit
	}{
		"one class":  {[]string{"normal 1mb 64k 10"}, OutputLimit{1 << 20, 64000, 10 * time.Second}, pubsub},
		"redis.conf": {[]string{"NORMAL 1 0 0 pubsub 0 2 3"}, OutputLimit{Hard: 1}, OutputLimit{Soft: 2, For: 3 * time.Second}},
		"repeated":   {[]string{"normal 1 0 0", "pubsub 0 0 0"}, OutputLimit{Hard: 1}, OutputLimit{}},
		"none":       {nil, OutputLimit{}, pubsub},
	} {
		var args []string
		for _, a := range c.args {
			args = append(args, "--client-output-buffer-limit", a)
		}
		got, err := Parse(args)
		if err != nil || got.Limits.NormalOutput != c.normal || got.Limits.PubSubOutput != c.pubsub {
			t.Errorf("%s: %v, %v, %v", name, got.Limits.NormalOutput, got.Limits.PubSubOutput, err)
		}
	}
	for _, bad := range []string{"normal", "normal 1 2", "replica 0 0 0", "normal -1 0 0", "normal 0 x 0", "normal 0 0 1.5", "normal 0 0 0 pubsub"} {
		if _, err := Parse([]string{"--client-output-buffer-limit", bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
