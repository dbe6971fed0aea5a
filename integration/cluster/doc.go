// Package cluster tests lockproxy in front of a Redis Cluster whose nodes fail, move slots, and are cut off.
package cluster
