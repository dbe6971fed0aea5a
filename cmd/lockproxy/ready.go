package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/admin"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/upstream"
)

// checks are what must be so before clients should come.
func (a *app) checks(service upstream.Identity) []admin.Check {
	all := []admin.Check{
		{Name: "commands", Ask: a.server.Learned},
		{Name: "upstream", Ask: func(ctx context.Context) error {
			return cmp.Or(enough(ctx, 1, a.someNodes(), func(ctx context.Context, n *upstream.Node) error { return backend.Ping(ctx, n, service) }), a.refusesWrites())
		}},
		{Name: "locks", Told: true, Ask: func(context.Context) error {
			_, err := a.locks.Able()
			return err
		}},
	}
	if len(a.quorum) > 0 {
		all = append(all, admin.Check{Name: "quorum", Ask: func(ctx context.Context) error {
			return enough(ctx, tally.Majority(len(a.quorum)), a.quorum, pingQuorum)
		}})
	}
	return all
}

// refusesWrites says why the one Redis refuses writes; nil: it does not. A cluster, and Sentinels, have none but
// masters.
func (a *app) refusesWrites() error {
	if a.upstream.address == nil {
		return nil
	}
	return a.upstream.address.RefusesWrites()
}

// lookStuck takes what everybody needs, which is a matter of a moment unless the process is stuck.
func (a *app) lookStuck() {
	a.server.Look()
	a.locks.Stats()
}

// askedNodes is how many masters of a cluster are asked whether they are there. One is enough to serve, and all
// others would say the same of that one that is not.
const askedNodes = 5

// someNodes are those that commands go to, a few of them on a large cluster.
func (a *app) someNodes() (nodes []*upstream.Node) {
	if a.node != nil {
		return []*upstream.Node{a.node}
	}
	masters := a.upstream.cluster.Snapshot().Masters
	for _, i := range rand.Perm(len(masters))[:min(askedNodes, len(masters))] {
		nodes = append(nodes, masters[i].Upstream())
	}
	return nodes
}

// pingQuorum says why a node's vote does not count. One that is too young is not connected to.
func pingQuorum(ctx context.Context, n quorum.Node) error {
	client, err := n.Control.Client(0)
	if err != nil {
		return err
	}
	err = client.Do(ctx, client.B().Ping().Build()).Error()
	var said *rueidis.RedisError
	if errors.As(err, &said) && strings.HasPrefix(said.Error(), "NOPERM") {
		return nil
	}
	return err
}

// enough asks all at once, and is content as soon as so many have no trouble. The error has the others'.
func enough[T any](ctx context.Context, wanted int, all []T, try func(context.Context, T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan error, len(all))
	for _, one := range all {
		go answerInto(ctx, answers, one, try)
	}
	good, bad := 0, []error{}
	for good < wanted {
		if len(bad)+wanted > len(all) {
			return fmt.Errorf("%d of %d do not answer: %w", len(bad), len(all), errors.Join(bad...))
		}
		select {
		case err := <-answers:
			if err == nil {
				good++
			} else {
				bad = append(bad, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("%d of %d answer in time", good, len(all))
		}
	}
	return nil
}

func answerInto[T any](ctx context.Context, answers chan<- error, one T, try func(context.Context, T) error) {
	answers <- try(ctx, one)
}
