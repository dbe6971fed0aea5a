package session

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/proxies"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// ProxyOf implements commands.Proxy.
func (cs *clients) ProxyOf(owner string) (at string, none bool) {
	p, _, none := cs.proxies.Of(owner)
	return p.Addr, none
}

// Proxies implements commands.Operator.
func (o Operators) Proxies(ctx context.Context) []proxies.State { return o.s.o.AllProxies(ctx) }

// Others implements commands.Operator.
func (o Operators) Others(ctx context.Context) []lock.Entry { return o.s.o.Steering.Others(ctx) }

// ClientLists are the connections to the nodes that answer, as the service account sees them: see proxies.Registry.
func (o Operators) ClientLists(ctx context.Context) ([]resp.Reply, error) {
	return o.s.up.common.AskAllAsService(ctx, o.s.up.backend, bytesOf([]string{"CLIENT", "LIST", "TYPE", "normal"}))
}

// Scan makes a step of a SCAN as the service account, for the page.
func (o Operators) Scan(ctx context.Context, db int, step backend.Scan) (next string, keys []string, err error) {
	return o.s.up.common.ScanAsService(ctx, o.s.up.backend, db, step)
}
