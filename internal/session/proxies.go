package session

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// ProxyOf implements commands.Proxy.
func (c *clients) ProxyOf(owner string) (at string, none bool) {
	p, _, none := c.proxies.Of(owner)
	return p.Addr, none
}

// Proxies implements commands.Operator.
func (s *Server) Proxies(ctx context.Context) []proxies.State { return s.o.AllProxies(ctx) }

// Others implements commands.Operator.
func (s *Server) Others(ctx context.Context) []lock.Entry { return s.o.Steering.Others(ctx) }

// KnowProxies has the registry know this proxy and learn of the others, until ctx ends.
func (s *Server) KnowProxies(ctx context.Context, r *proxies.Registry) {
	r.Run(ctx, func(ctx context.Context, words [][]byte, at int) ([]byte, error) {
		return s.up.common.RunAsService(ctx, s.up.backend, words, at)
	})
}

// Address is the address that this machine has for those who are where Redis is; "": that is not known.
func (s *Server) Address(ctx context.Context) string {
	for _, m := range s.up.backend.Members() {
		if at := proxies.Toward(ctx, m.Addr); m.Trouble == nil && at != "" {
			return at
		}
	}
	return ""
}

// Scan makes a step of a SCAN as the service account, for the page.
func (s *Server) Scan(ctx context.Context, db int, step backend.Scan) (next string, keys []string, err error) {
	return s.up.common.ScanAsService(ctx, s.up.backend, db, step)
}
