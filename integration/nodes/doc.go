// Package nodes tests lockproxy before many nodes: a Redis Cluster, Sentinels, a quorum of independent servers. All of them
// are real processes, and so is lockproxy.
package nodes
