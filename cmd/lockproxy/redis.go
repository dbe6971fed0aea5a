package main

import (
	"context"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/upstream"
	"github.com/lockproxy/lockproxy/upstream/sentinel"
)

// redisAt is the Redis at a URL: one, the master behind Sentinels, or a cluster.
type redisAt struct {
	follower *sentinel.Follower // nil without Sentinels
	address  *upstream.Address  // nil with Sentinels, a cluster or the embedded store
	control  *upstream.Control  // nil with a cluster
	cluster  *cluster.Cluster   // nil with a node
}

// connect prepares for the Redis at a URL, and returns its Target, of a cluster what its nodes have in common. Only of a
// cluster it waits until that tells of its nodes, or ctx ends.
func (a *app) connect(ctx context.Context, to *redisAt, url upstream.URL, passwordFile string) (target upstream.Target, err error) {
	all, clustered := url.Cluster()
	if target = url.Target(); clustered {
		target = all.Node
	}
	if err = a.secureUpstream(&target, passwordFile); err != nil {
		return target, err
	}
	switch {
	case clustered:
		all.Node = target
		to.cluster, err = a.findCluster(ctx, all)
		return target, err
	case target.Sentinels != nil:
		to.follower = sentinel.Follow(&target, a.log)
	case a.store == nil:
		to.address = upstream.FollowAddress(&target, a.log)
		a.addresses = append(a.addresses, to.address)
	}
	to.control = upstream.NewControl(target, upstream.ControlOptions{Logger: a.log})
	return target, nil
}

// connectUpstream prepares for what is upstream, and returns the service account there.
func (a *app) connectUpstream(ctx context.Context, url upstream.URL) (service upstream.Identity, err error) {
	target, err := a.connect(ctx, &a.upstream, url, a.cfg.Upstream.PasswordFile)
	if err == nil && a.upstream.cluster == nil {
		a.node = upstream.NewNode(target, upstream.NodeOptions{Logger: a.log, Budget: a.budget})
	}
	service = target.Service()
	service.DB = target.DB
	return service, err
}

// keeps is the store of locks that are there.
func (r *redisAt) keeps(by sharded.PubSub) lockstore.Opener {
	if r.cluster != nil {
		return sharded.Cluster(r.cluster, by)
	}
	return sharded.Single(r.control)
}

// close stops what follows the Redis; the Control is closed before.
func (r *redisAt) close() {
	if r.follower != nil {
		r.follower.Close()
	}
	if r.cluster != nil {
		r.cluster.Close()
	}
}
