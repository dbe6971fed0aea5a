package runlock

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// passing begins the errors of a proxy, or of Redis, whose reason may pass.
var passing = []string{"DRAINING", "NOQUORUM", "NOREPLICAS", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "MISCONF",
	"ERR upstream", "ERR max number of", "ERR the reply to this"}

// mayPass says that another try may do better.
func mayPass(err error) bool {
	said := upstream.Refused(err)
	return said == nil || slices.ContainsFunc(passing, func(begin string) bool { return strings.HasPrefix(said.Line, begin) })
}

func isLoss(err error) bool { return upstream.RefusedWith(err, "LOCKLOST", "NOTHELD") }

// askProxy sends commands together and returns their replies, of which none is an error. It waits so long for them if limit
// is not 0. After an error that may pass the next question goes over a new connection, maybe to another proxy.
func (h *holder) askProxy(ctx context.Context, limit time.Duration, commands ...[]string) ([]resp.Reply, error) {
	replies, err := h.proxy.Ask(ctx, limit, commands...)
	if err == nil {
		err = errorIn(replies)
	}
	if err != nil && mayPass(err) {
		h.proxy.Close()
	}
	return replies, err
}

// errorIn is the error among replies that counts: a loss before all others.
func errorIn(replies []resp.Reply) (first error) {
	for _, r := range replies {
		if err := upstream.ErrorIn(r.Raw); err != nil && (first == nil || isLoss(err)) {
			first = err
		}
	}
	return first
}
