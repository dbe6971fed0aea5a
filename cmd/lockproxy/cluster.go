package main

import (
	"context"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/systemd"
	"github.com/lockproxy/lockproxy/upstream"
)

// clusterRetry is how often a cluster is looked for at the start.
const clusterRetry = time.Second

// addressMap reads cluster-address-map.
func addressMap(cfg config.Config) (map[string]string, error) {
	return cluster.ParseAddressMap(strings.Join(cfg.Cluster.AddressMap, ","))
}

// findCluster opens the cluster as soon as one of the nodes given tells of it, and returns the service account there.
func (a *app) findCluster(ctx context.Context, target upstream.ClusterTarget) (service upstream.Identity, err error) {
	if err = a.secureUpstream(&target.Node, a.cfg.Upstream.PasswordFile); err != nil {
		return service, err
	}
	addresses, err := addressMap(a.cfg)
	if err != nil {
		return service, err
	}
	o := cluster.Options{
		Node: upstream.NodeOptions{Logger: a.log, Budget: a.budget}, Refresh: a.cfg.Cluster.Refresh, RetryFor: a.cfg.Cluster.Retry, Timeout: a.cfg.Upstream.Timeout, AddressMap: addresses,
	}
	told := "" // the last error in the log, which need not say it every second
	for {
		if a.cluster, err = cluster.Open(ctx, target, o); err == nil {
			if told != "" {
				a.log.Info("the cluster is there")
			}
			a.locks = lock.New(sharded.Cluster(a.cluster, sharded.PubSub(a.cfg.Cluster.PubSub)), a.lockOptions())
			return target.Node.Service(), nil
		}
		if said := err.Error(); said != told {
			a.log.Warn("the cluster is not there yet", "error", err)
			told = said
		}
		systemd.StillStarting(10 * clusterRetry)
		if !retry.Sleep(ctx, clusterRetry, nil) {
			return service, err
		}
	}
}
