package upstream_test

import (
	"log/slog"

	"github.com/lockproxy/lockproxy/upstream"
	"github.com/lockproxy/lockproxy/upstream/sentinel"
)

func init() {
	upstream.Follow = func(t *upstream.Target, log *slog.Logger) interface {
		upstream.Resolver
		Close()
	} {
		return sentinel.Follow(t, log)
	}
}
