package main

import (
	"context"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/config"
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

// findCluster opens a cluster as soon as one of the nodes given tells of it.
func (a *app) findCluster(ctx context.Context, target upstream.ClusterTarget) (*cluster.Cluster, error) {
	addresses, err := addressMap(a.cfg)
	if err != nil {
		return nil, err
	}
	o := cluster.Options{
		Node: upstream.NodeOptions{Logger: a.log, Budget: a.budget}, Refresh: a.cfg.Cluster.Refresh, RetryFor: a.cfg.Cluster.Retry, Timeout: a.cfg.Upstream.Timeout, AddressMap: addresses,
	}
	told := "" // the last error in the log, which need not say it every second
	for {
		found, err := cluster.Open(ctx, target, o)
		if err == nil {
			if told != "" {
				a.log.Info("the cluster is there")
			}
			return found, nil
		}
		if said := err.Error(); said != told {
			a.log.Warn("the cluster is not there yet", "error", err)
			told = said
		}
		systemd.StillStarting(10 * clusterRetry)
		if !retry.Sleep(ctx, clusterRetry, nil) {
			return nil, err
		}
	}
}
