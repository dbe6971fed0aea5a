package session

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// ProxyOf implements commands.Proxy.
func (cs *clients) ProxyOf(owner string) (host string, none bool) {
	of, none := cs.proxies.Of(context.Background(), owner)
	return of.Host, none
}

// Proxies implements commands.Operator.
func (o Operators) Proxies(ctx context.Context, q proxies.Question) proxies.Overview {
	return o.s.clients.proxies.Ask(ctx, q)
}

// Scan makes a step of a SCAN as the service account, for the page.
func (o Operators) Scan(ctx context.Context, db int, step backend.Scan) (next string, keys []string, err error) {
	return o.s.up.common.ScanAsService(ctx, o.s.up.backend, db, step)
}
